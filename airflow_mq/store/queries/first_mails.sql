-- Of each origin that is not ready and has mail the first of it, from origin to origin along the index. Takes no lock.
WITH RECURSIVE walk(origin) AS (
    SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring AND m.origin > walk.origin)
    FROM walk
    WHERE walk.origin IS NOT NULL
), news AS (
    SELECT w.origin, coalesce(b.wake_at, 0) AS wake_at, coalesce(b.messages, 0) AS messages,
           coalesce(length(b.ahead), 0) AS ahead,
           (SELECT min(m.id) FROM {s}mail m
            WHERE m.ring = :ring AND m.origin = w.origin AND m.id >= coalesce(b.floor, 0)) AS first
    FROM walk w
    LEFT JOIN {s}book b ON b.ring = :ring AND b.origin = w.origin
    WHERE w.origin IS NOT NULL AND b.ticket IS NULL
)
SELECT n.origin, n.wake_at, n.messages, n.ahead,
       (SELECT max(l.id) FROM {s}mail l WHERE l.ring = :ring AND l.origin = n.origin) = m.id AS whole,
       m.id, m.size, m.items, m.more, m.lengths, m.attributes
FROM news n
JOIN {s}mail m ON m.ring = :ring AND m.origin = n.origin AND m.id = n.first
