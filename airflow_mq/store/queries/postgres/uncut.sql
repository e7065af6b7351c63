-- Mail of all origins in the order of ids. Takes no lock.
SELECT m.origin, m.id, (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.size, m.items, m.more, m.lengths, m.attributes
FROM {s}mail m
WHERE m.ring = %(ring)s AND m.id > %(after)s
ORDER BY m.id
LIMIT %(limit)s
