-- Origins by name that have mail, from origin to origin along the index. Takes no lock.
WITH RECURSIVE walk(origin, place) AS (
    SELECT min(m.origin), 1 FROM {s}mail m WHERE m.ring = :ring AND m.origin > :after AND m.origin >= :first
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}mail m WHERE m.ring = :ring AND m.origin > walk.origin), walk.place + 1
    FROM walk
    WHERE walk.origin IS NOT NULL AND walk.origin < :below AND walk.place < :limit
)
SELECT walk.origin FROM walk WHERE walk.origin IS NOT NULL AND walk.origin < :below
