-- The sizes of the next mails of a ring. Takes no lock.
SELECT m.id, m.ring, m.origin, m.items, m.size
FROM {s}mail m
WHERE m.ring = %(ring)s AND m.id > %(after)s
ORDER BY m.id
LIMIT %(limit)s
