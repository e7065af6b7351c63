-- Who planned the latest blocks: of each, the latest one. Takes no lock.
SELECT DISTINCT ON (b.details -> 'server' ->> 'name') b.id, b.planned_at, (b.details -> 'server')::text FROM (
    SELECT r.id, r.planned_at, r.details FROM {s}block r WHERE r.ring = %(ring)s AND r.id < %(before)s
    ORDER BY r.id DESC LIMIT %(limit)s
) b
WHERE b.details -> 'server' IS NOT NULL
ORDER BY b.details -> 'server' ->> 'name', b.id DESC
