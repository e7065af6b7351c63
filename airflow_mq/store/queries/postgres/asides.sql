-- Why messages of these pages were set aside. Takes no lock.
SELECT a.origin, a.page, a.item, a.id, a.weight, a.weight_limit, a.reason, a.block, a.at
FROM unnest(%(origin)b::text[], %(page)b::bigint[]) AS w(origin, page)
JOIN {s}aside a ON a.ring = %(ring)s AND a.origin = w.origin AND a.page = w.page
