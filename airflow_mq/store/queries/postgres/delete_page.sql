-- Remove pages. Under the ring's lock.
DELETE FROM {s}page d
USING unnest(%(origin)b::text[], %(page)b::bigint[]) AS w(origin, page)
WHERE d.ring = %(ring)s AND d.origin = w.origin AND d.page = w.page
