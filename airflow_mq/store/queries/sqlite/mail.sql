-- The next mail of an origin; with its bytes, if there are few enough. Takes no lock.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, CASE WHEN m.size <= :inline THEN m.heap END
FROM {s}mail m
WHERE m.ring = :ring AND m.origin = :origin AND m.id > :after
ORDER BY m.id
LIMIT :limit
