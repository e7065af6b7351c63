-- Events in the order in which they happened. Takes no lock.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e
WHERE e.ring = %(ring)s AND e.id > %(after)s AND (%(origin)s::text IS NULL OR e.origin IN (%(origin)s, %(high)s))
  AND (%(block)s::bigint IS NULL OR e.block = %(block)s)
ORDER BY e.id
LIMIT %(limit)s
