-- What a block set aside, by address, behind one. Takes no lock.
{part asides}
  AND a.block = :block
ORDER BY a.origin, a.page, a.item
LIMIT :limit
