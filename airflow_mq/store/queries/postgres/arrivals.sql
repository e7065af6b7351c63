-- When many mails were sent, and the first block that was planned after that. Takes no lock.
SELECT m.origin, m.id, (extract(epoch FROM m.sent_at) * 1000000)::bigint, (
    SELECT b.number FROM {s}block b WHERE b.ring = %(ring)s AND b.id > m.id AND NOT b.by_hand ORDER BY b.id LIMIT 1
)
FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
JOIN {s}mail m ON m.ring = %(ring)s AND m.origin = w.origin AND m.id = w.id
