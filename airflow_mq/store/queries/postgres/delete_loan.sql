-- The borrowers are gone. Under their ring's lock; waits for whoever looks at the same lender.
DELETE FROM {s}loan d
USING unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
WHERE d.ring = %(ring)s AND d.origin = w.origin AND d.mail = w.id
