-- Set-aside messages by their addresses, behind one. Takes no lock.
SELECT a.origin, a.page, a.item, a.id, a.size, a.weight, a.weight_limit, a.reason, a.block, a.at, a.arrived_at,
       a.arrived_block
FROM {s}aside a
WHERE a.ring = %(ring)s AND (a.origin, a.page, a.item) > (%(origin)s, %(page)s, %(item)s)
  AND a.origin <= %(last)s AND (%(reason)s::text IS NULL OR a.reason = %(reason)s)
  AND a.arrived_at < %(before)s
ORDER BY a.origin, a.page, a.item
LIMIT %(limit)s
