-- Mail of all origins in the order of ids, without its bytes. Takes no lock.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, NULL::bytea
FROM {s}mail m
WHERE m.ring = %(ring)s AND m.id > %(after)s
ORDER BY m.id
LIMIT %(limit)s
