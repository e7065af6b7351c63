-- Events: the history of messages, packed by queue.

-- name: insert_event
-- Write packed events in order. Requires the ring lock.
INSERT INTO {s}event (id, ring, block, at, origin, events, data)
VALUES (:id, :ring, :block, :at, :origin, :events, :data)

-- name: insert_event (postgres)
-- They get their ids in the order of the arrays.
INSERT INTO {s}event {rows ring, block bigint, at bigint, origin text[], events int[], data bytea[]}

-- name: events
-- Return events after an id in order, of one queue or of one block if given.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e
WHERE {part by_id}e.ring = :ring AND e.id > :after AND (CAST(:origin AS text) IS NULL OR e.origin IN (:origin, :high))
  AND (CAST(:block AS bigint) IS NULL OR e.block = :block)
ORDER BY e.id
LIMIT :limit

-- name: first_event
-- Return the id of the first event since a time.
SELECT e.id FROM {s}event e WHERE e.ring = :ring AND e.at >= :since ORDER BY e.at, e.id LIMIT 1

-- name: recent_events
-- Return events of all queues, the latest first.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e
WHERE {part by_id}e.ring = :ring AND e.id < :before
ORDER BY e.id DESC LIMIT :limit

-- name: recent_events_of
-- Return events of each of these queues, the latest first.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e
WHERE e.ring = :ring AND e.origin = :origin AND e.id < :before
ORDER BY e.id DESC LIMIT :limit

-- name: recent_events_of (postgres)
SELECT e.id, e.origin, e.block, e.at, e.data
FROM {each origin text[]}
CROSS JOIN LATERAL (
    SELECT * FROM {s}event e
    WHERE e.ring = :ring AND e.origin = w.origin AND e.id < :before
    ORDER BY e.id DESC LIMIT :limit
) e

-- part: oldest
-- The oldest rows `e` of a table after a time, and at or before another, at most `limit`.
WHERE e.ring = :ring AND e.at > :after AND e.at <= :before ORDER BY e.at LIMIT :limit {part for_update}

-- name: expire_event
-- Delete the oldest events.
DELETE FROM {s}event WHERE id IN (SELECT e.id FROM {s}event e {part oldest})

-- name: expire_event (postgres)
-- Skip rows that another transaction deletes. The look begins with the oldest rows, and ends with the first `limit`.
DELETE FROM {s}event WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM {s}event e {part oldest}))
