-- The bytes of many mails. Takes no lock.
SELECT m.origin, m.id, m.lengths, m.items, m.size, m.heap
FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
JOIN {s}mail m ON m.ring = %(ring)s AND m.origin = w.origin AND m.id = w.id
