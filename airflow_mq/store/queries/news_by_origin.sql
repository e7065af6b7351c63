-- The same without reading all mail: from origin to origin along the index. Takes no lock.
WITH RECURSIVE walk(origin) AS (
    SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring AND m.origin > walk.origin)
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
