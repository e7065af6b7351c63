-- Set-aside messages of a span of books by their addresses, behind one.
SELECT a.origin, a.page, a.item, a.id, a.size, a.weight, a.weight_limit, a.reason, a.block, a.at, a.arrived_at,
       a.arrived_block
FROM {s}aside a
WHERE a.ring = :ring AND (a.origin, a.page, a.item) > (:origin, :page, :item)
  AND a.origin <= :last AND (CAST(:reason AS text) IS NULL OR a.reason = :reason)
  AND a.arrived_at < :before
