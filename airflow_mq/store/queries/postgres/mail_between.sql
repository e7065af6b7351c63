-- The ids of each origin's mail in a range. Takes no lock.
SELECT w.origin, found.ids
FROM unnest(%(origin)b::text[], %(first)b::bigint[], %(below)b::bigint[]) AS w(origin, first, below)
CROSS JOIN LATERAL (
    SELECT array_agg(m.id) AS ids FROM {s}mail m
    WHERE m.ring = %(ring)s AND m.origin = w.origin AND m.id >= w.first AND m.id < w.below
) found
