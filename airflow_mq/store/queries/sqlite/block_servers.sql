-- Who planned the latest blocks: of each, the latest one. Takes no lock.
SELECT max(b.number), b.planned_at, json_extract(b.details, '$.server') FROM (
    SELECT r.number, r.planned_at, r.details FROM {s}block r WHERE r.ring = :ring AND r.number < :before ORDER BY r.number DESC LIMIT :limit
) b
WHERE json_extract(b.details, '$.server') IS NOT NULL
GROUP BY json_extract(b.details, '$.server.name')
