-- Remember why messages were set aside. Under the ring's lock.
INSERT INTO {s}aside (ring, block, at, origin, page, item, id, size, weight, weight_limit, reason, arrived_at, arrived_block)
VALUES (:ring, :block, :at, :origin, :page, :item, :id, :size, :weight, :weight_limit, :reason, :arrived_at, :arrived_block)
ON CONFLICT (ring, origin, page, item) DO UPDATE SET
    weight = excluded.weight,
    weight_limit = excluded.weight_limit,
    reason = excluded.reason,
    block = excluded.block,
    at = excluded.at,
    arrived_at = excluded.arrived_at,
    arrived_block = excluded.arrived_block
