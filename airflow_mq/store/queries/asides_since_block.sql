-- Set-aside messages that arrived before this block and after the one before it. Takes no lock.
SELECT a.origin, a.page, a.item, a.id, a.size, a.weight, a.weight_limit, a.reason, a.block, a.at, a.arrived_at,
       a.arrived_block
FROM {s}aside a
WHERE a.ring = :ring AND a.arrived_block = :arrived AND (a.origin, a.page, a.item) > (:origin, :page, :item)
  AND a.origin <= :last AND (CAST(:reason AS text) IS NULL OR a.reason = :reason)
  AND a.arrived_at < :before
ORDER BY a.origin, a.page, a.item
LIMIT :limit
