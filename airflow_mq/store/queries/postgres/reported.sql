-- What was reported for these origins to blocks that still live. Takes no lock.
SELECT c.origin, o.data
FROM {s}claim c JOIN {s}outcome o ON o.block = c.block
WHERE c.ring = %(ring)s AND c.origin = ANY(%(origin)b::text[])
GROUP BY c.origin, o.id, o.data
ORDER BY o.id
