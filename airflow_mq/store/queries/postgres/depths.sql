-- What waits of many queues and is in no page yet, of at most so many mails each; when the first of all was sent, what
-- came lately, and how much waits for a person, in at most so many pages. Takes no lock.
SELECT w.origin, u.mails, u.items, u.size,
       (SELECT (extract(epoch FROM m.sent_at) * 1000000)::bigint FROM {s}mail m WHERE m.ring = %(ring)s AND m.origin = w.origin AND m.id = coalesce(
           (SELECT p.first_mail FROM {s}page p
            WHERE p.ring = %(ring)s AND p.origin = w.origin AND p.page >= w.begin ORDER BY p.page LIMIT 1),
           (SELECT f.id FROM {s}mail f
            WHERE f.ring = %(ring)s AND f.origin = w.origin AND f.id >= w.floor ORDER BY f.id LIMIT 1))) AS oldest,
       (SELECT coalesce(sum(l.items), 0)::bigint FROM (
           SELECT m.items, m.sent_at FROM {s}mail m
           WHERE m.ring = %(ring)s AND m.origin = w.origin ORDER BY m.id DESC LIMIT %(latest)s) l
        WHERE l.sent_at > to_timestamp(%(since)s / 1000000.0)) AS lately,
       (SELECT coalesce(sum(k.kept), 0)::bigint FROM (
           SELECT p.kept FROM {s}page p
           WHERE p.ring = %(ring)s AND p.origin = w.origin AND p.kept > 0 LIMIT %(most)s) k) AS kept
FROM unnest(%(origin)b::text[], %(floor)b::bigint[], %(begin)b::bigint[]) AS w(origin, floor, begin)
CROSS JOIN LATERAL (
    SELECT count(*) AS mails, coalesce(sum(n.items), 0)::bigint AS items, coalesce(sum(n.size), 0)::bigint AS size
    FROM (SELECT m.items, m.size FROM {s}mail m
          WHERE m.ring = %(ring)s AND m.origin = w.origin AND m.id >= w.floor ORDER BY m.id LIMIT %(most)s) n
) u
