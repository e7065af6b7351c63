-- Events of a queue, the latest first. Takes no lock.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e
WHERE e.ring = :ring AND e.origin = :origin AND e.id < :before
ORDER BY e.id DESC
LIMIT :limit
