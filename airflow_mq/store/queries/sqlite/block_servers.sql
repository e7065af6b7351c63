-- Who planned the latest blocks: of each, the latest one. Takes no lock.
SELECT max(b.id), b.planned_at, json_extract(b.details, '$.server') FROM (
    SELECT r.id, r.planned_at, r.details FROM {s}block r WHERE r.ring = :ring AND r.id < :before ORDER BY r.id DESC LIMIT :limit
) b
WHERE json_extract(b.details, '$.server') IS NOT NULL
GROUP BY json_extract(b.details, '$.server.name')
