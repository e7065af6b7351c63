-- Events in the order in which they happened. Takes no lock.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e
WHERE e.ring = :ring AND e.id > :after AND (CAST(:origin AS text) IS NULL OR e.origin IN (:origin, :high))
  AND (CAST(:block AS bigint) IS NULL OR e.block = :block)
ORDER BY e.id
LIMIT :limit
