-- Mail of all origins in the order of ids, without its bytes. Takes no lock.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, CAST(NULL AS bytea)
FROM {s}mail m
WHERE m.ring = :ring AND m.id > :after
ORDER BY m.id
LIMIT :limit
