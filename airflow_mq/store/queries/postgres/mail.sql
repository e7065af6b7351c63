-- The next mail of each origin, without its bytes. Takes no lock.
SELECT m.origin, m.id, (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.size, m.items, m.more, m.lengths, m.attributes
FROM unnest(%(origin)b::text[], %(after)b::bigint[]) AS w(origin, after)
CROSS JOIN LATERAL (
    SELECT * FROM {s}mail m
    WHERE m.ring = %(ring)s AND m.origin = w.origin AND m.id > w.after
    ORDER BY m.id
    LIMIT %(limit)s
) m
