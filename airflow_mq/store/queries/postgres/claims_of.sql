-- What live blocks hold of these origins. Takes no lock.
SELECT c.origin, c.data FROM {s}claim c
WHERE c.ring = %(ring)s AND c.origin = ANY(%(origin)b::text[])
