-- Mail of all origins in the order of ids. Takes no lock.
SELECT m.origin, m.id, m.sent_at, m.size, m.items, m.more, m.lengths, m.attributes
FROM {s}mail m
WHERE m.ring = :ring AND m.id > :after
ORDER BY m.id
LIMIT :limit
