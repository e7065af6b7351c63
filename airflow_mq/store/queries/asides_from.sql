-- Set-aside messages by their addresses, behind one. Takes no lock.
{part asides}
ORDER BY a.origin, a.page, a.item
LIMIT :limit
