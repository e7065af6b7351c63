-- Remove mail that no page needs any more. Under the ring's lock.
DELETE FROM {s}mail d
USING unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
WHERE d.ring = %(ring)s AND d.origin = w.origin AND d.id = w.id
