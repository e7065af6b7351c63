-- Set-aside messages that arrived before this block and after the one before it. Takes no lock.
{part asides}
  AND a.arrived_block = :arrived
ORDER BY a.origin, a.page, a.item
LIMIT :limit
