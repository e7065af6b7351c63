-- Remember why messages were set aside. Under the ring's lock.
INSERT INTO {s}aside (ring, block, at, origin, page, item, id, size, weight, weight_limit, reason)
VALUES (:ring, :block, :at, :origin, :page, :item, :id, :size, :weight, :weight_limit, :reason)
ON CONFLICT (ring, origin, page, item) DO UPDATE SET
    weight = excluded.weight,
    weight_limit = excluded.weight_limit,
    reason = excluded.reason,
    block = excluded.block,
    at = excluded.at
