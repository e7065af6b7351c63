-- Who planned the latest blocks: of each, the latest one. Takes no lock.
SELECT DISTINCT ON (b.details -> 'server' ->> 'name') b.number, b.planned_at, (b.details -> 'server')::text FROM (
    SELECT r.number, r.planned_at, r.details FROM {s}block r WHERE r.ring = %(ring)s AND r.number < %(before)s
    ORDER BY r.number DESC LIMIT %(limit)s
) b
WHERE b.details -> 'server' IS NOT NULL
ORDER BY b.details -> 'server' ->> 'name', b.number DESC
