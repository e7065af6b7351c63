-- Forget that messages were set aside. Under the ring's lock.
DELETE FROM {s}aside d
USING unnest(%(origin)b::text[], %(page)b::bigint[], %(item)b::int[]) AS w(origin, page, item)
WHERE d.ring = %(ring)s AND d.origin = w.origin AND d.page = w.page AND d.item = w.item
