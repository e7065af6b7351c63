-- The origins of the next mails of a ring. Takes no lock.
SELECT m.origin, m.id
FROM {s}mail m
WHERE m.ring = %(ring)s AND m.id > %(after)s
ORDER BY m.id
LIMIT %(limit)s
