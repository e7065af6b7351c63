-- The next mail of each origin; with its bytes, if there are few enough. Takes no lock.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, CASE WHEN m.size <= %(inline)s THEN m.heap END
FROM unnest(%(origin)b::text[], %(after)b::bigint[]) AS w(origin, after)
CROSS JOIN LATERAL (
    SELECT * FROM {s}mail m
    WHERE m.ring = %(ring)s AND m.origin = w.origin AND m.id > w.after
    ORDER BY m.id
    LIMIT %(limit)s
) m
