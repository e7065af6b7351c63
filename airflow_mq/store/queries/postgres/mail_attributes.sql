-- What senders said of the messages of many mails; only where they said anything. Takes no lock.
SELECT m.origin, m.id, m.attributes
FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
JOIN {s}mail m ON m.ring = %(ring)s AND m.origin = w.origin AND m.id = w.id
WHERE m.attributes <> ''
