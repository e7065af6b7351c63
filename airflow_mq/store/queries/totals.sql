-- How deep queues are, the deepest or the oldest first, and all of them together; what waits for a person does not
-- count. The oldest mail is that of the first page that waits, or of what is in no page yet. Takes no lock.
WITH uncut AS (
    SELECT m.origin, sum(m.items) AS items, sum(m.size) AS size, min(m.sent_at) AS sent
    FROM {s}mail m
    LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
    WHERE m.ring = :ring AND m.id >= coalesce(b.floor, 0)
    GROUP BY m.origin
), kept AS (
    SELECT p.origin, sum(p.kept) AS items, sum(CASE
        WHEN p.page < b.begin_page THEN p.remaining_size
        ELSE (SELECT sum(a.size) FROM {s}aside a WHERE a.ring = p.ring AND a.origin = p.origin AND a.page = p.page)
    END) AS size
    FROM {s}page p
    JOIN {s}book b ON b.ring = p.ring AND b.origin = p.origin
    WHERE p.ring = :ring AND p.kept > 0
    GROUP BY p.origin
), cut AS (
    SELECT b.origin, b.messages - coalesce(k.items, 0) AS items, b.size - coalesce(k.size, 0) AS size,
           (SELECT m.sent_at FROM {s}mail m
            WHERE m.ring = b.ring AND m.origin = b.origin AND m.id >= (
                SELECT p.first_mail FROM {s}page p
                WHERE p.ring = b.ring AND p.origin = b.origin AND p.page >= b.begin_page
                ORDER BY p.page LIMIT 1
            )
            ORDER BY m.id LIMIT 1) AS sent
    FROM {s}book b
    LEFT JOIN kept k ON k.origin = b.origin
    WHERE b.ring = :ring AND b.messages > coalesce(k.items, 0)
), queue AS (
    SELECT w.origin, sum(w.items) AS items, sum(w.size) AS size, {at min(w.sent)} AS sent
    FROM (SELECT * FROM cut UNION ALL SELECT * FROM uncut) w
    GROUP BY w.origin
)
SELECT q.origin, CAST(q.items AS bigint), CAST(q.size AS bigint), q.sent, CAST(sum(q.items) OVER () AS bigint),
       CAST(sum(q.size) OVER () AS bigint), min(q.sent) OVER (), count(*) OVER ()
FROM queue q
ORDER BY CASE WHEN :oldest THEN coalesce(q.sent, 9223372036854775807) ELSE -q.items END, q.origin
LIMIT :limit
