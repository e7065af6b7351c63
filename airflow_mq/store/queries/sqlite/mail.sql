-- The next mail of an origin, without its bytes. Takes no lock.
SELECT m.origin, m.id, m.sent_at, m.size, m.items, m.more, m.lengths, m.attributes
FROM {s}mail m
WHERE m.ring = :ring AND m.origin = :origin AND m.id > :after
ORDER BY m.id
LIMIT :limit
