-- Books by name that are not ready and have mail, with their first one: from origin to origin along the index, without
-- reading all mail. Takes no lock.
WITH RECURSIVE walk(origin) AS (
    SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring AND m.origin > :after AND m.origin < :below
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring AND m.origin > walk.origin AND m.origin < :below)
    FROM walk
    WHERE walk.origin IS NOT NULL
)
SELECT w.origin,
       (SELECT min(m.id) FROM {s}mail m
        WHERE m.ring = :ring AND m.origin = w.origin AND m.id >= coalesce(b.floor, 0)) AS first
FROM walk w
LEFT JOIN {s}book b ON b.ring = :ring AND b.origin = w.origin
WHERE w.origin IS NOT NULL AND b.ticket IS NULL
ORDER BY 2
