-- Remember why messages were set aside. Under the ring's lock.
INSERT INTO {s}aside (ring, block, at, origin, page, item, id, size, weight, weight_limit, reason, arrived_at, arrived_block)
SELECT %(ring)s, %(block)s::bigint, %(at)s::bigint, w.origin, w.page, w.item, w.id, w.size, w.weight, w.weight_limit, w.reason, w.arrived_at, w.arrived_block
FROM unnest(%(origin)b::text[], %(page)b::bigint[], %(item)b::int[], %(id)b::bytea[], %(size)b::int[], %(weight)b::bytea[], %(weight_limit)b::bytea[], %(reason)b::text[], %(arrived_at)b::bigint[], %(arrived_block)b::bigint[]) AS w(origin, page, item, id, size, weight, weight_limit, reason, arrived_at, arrived_block)
ON CONFLICT (ring, origin, page, item) DO UPDATE SET
    weight = excluded.weight,
    weight_limit = excluded.weight_limit,
    reason = excluded.reason,
    block = excluded.block,
    at = excluded.at,
    arrived_at = excluded.arrived_at,
    arrived_block = excluded.arrived_block
