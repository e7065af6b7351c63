-- The bytes of a mail. Takes no lock.
SELECT m.origin, m.id, m.lengths, m.items, m.size, m.heap
FROM {s}mail m
WHERE m.ring = :ring AND m.origin = :origin AND m.id = :id
