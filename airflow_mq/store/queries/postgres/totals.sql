-- How deep queues are, the deepest or the oldest first, and all of them together; what is set aside does not count.
-- The oldest mail is that of the first page that waits, or of what is in no page yet. Takes no lock.
WITH uncut AS (
    SELECT m.origin, sum(m.items) AS items, sum(m.size) AS size, min(m.sent_at) AS sent
    FROM {s}mail m
    LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
    WHERE m.ring = %(ring)s AND m.id >= coalesce(b.floor, 0)
    GROUP BY m.origin
), cut AS (
    SELECT b.origin, b.messages - coalesce(a.items, 0) AS items, b.size - coalesce(a.size, 0) AS size,
           (SELECT m.sent_at FROM {s}mail m
            WHERE m.ring = b.ring AND m.origin = b.origin AND m.id >= (
                SELECT p.first_mail FROM {s}page p
                WHERE p.ring = b.ring AND p.origin = b.origin AND p.page >= b.begin_page
                ORDER BY p.page LIMIT 1
            )
            ORDER BY m.id LIMIT 1) AS sent
    FROM {s}book b
    LEFT JOIN (
        SELECT a.origin, count(*) AS items, sum(a.size) AS size FROM {s}aside a WHERE a.ring = %(ring)s GROUP BY a.origin
    ) a ON a.origin = b.origin
    WHERE b.ring = %(ring)s AND b.messages > coalesce(a.items, 0)
), queue AS (
    SELECT w.origin, sum(w.items)::bigint AS items, sum(w.size)::bigint AS size,
           (extract(epoch FROM min(w.sent)) * 1000000)::bigint AS sent
    FROM (SELECT * FROM cut UNION ALL SELECT * FROM uncut) w
    GROUP BY w.origin
)
SELECT q.origin, q.items, q.size, q.sent, (sum(q.items) OVER ())::bigint, (sum(q.size) OVER ())::bigint,
       min(q.sent) OVER (), count(*) OVER ()
FROM queue q
ORDER BY CASE WHEN %(oldest)s THEN coalesce(q.sent, 9223372036854775807) ELSE -q.items END, q.origin
LIMIT %(limit)s
