-- When many mails were sent. Takes no lock.
SELECT m.id, (extract(epoch FROM m.sent_at) * 1000000)::bigint
FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
JOIN {s}mail m ON m.ring = %(ring)s AND m.origin = w.origin AND m.id = w.id
