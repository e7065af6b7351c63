-- Shards: the layout that a ring adopted, and its pinned origins.

-- name: shard
-- Return the shard that a ring is, with its layout.
SELECT h.name, h.version, h.layout FROM {s}shard h WHERE h.ring = :ring

-- name: shard_fence
-- Return name and version of the shard. On PostgreSQL, the lock of this read on the table holds off `lock_shard` until
-- the transaction ends; the statement takes its snapshot after the lock.
SELECT h.name, h.version FROM {s}shard h WHERE h.ring = :ring

-- name: lock_shard
-- The writing transaction is the only one.
SELECT 1

-- name: lock_shard (postgres)
-- Wait until every transaction that has read the fence ends, and hold off the next ones.
LOCK TABLE {s}shard IN ACCESS EXCLUSIVE MODE

-- name: adopt_layout
-- Write the layout of a shard. Requires `lock_shard`.
INSERT INTO {s}shard (ring, name, version, layout) VALUES (:ring, :name, :version, :layout)
ON CONFLICT (ring) DO UPDATE SET name = excluded.name, version = excluded.version, layout = excluded.layout

-- name: pins
-- Return pinned origins, after a name.
SELECT p.origin FROM {s}pin p WHERE p.ring = :ring AND p.origin > :after ORDER BY p.origin LIMIT :limit

-- name: pinned
-- Return which of these origins are pinned.
SELECT p.origin FROM {s}pin p WHERE p.ring = :ring AND p.origin = :origin

-- name: pinned (postgres)
SELECT p.origin FROM {s}pin p WHERE p.ring = :ring AND p.origin = ANY(:origin::text[])

-- name: pin
-- Pin origins. Requires `lock_shard`.
INSERT INTO {s}pin {rows ring bigint, origin text[]}
ON CONFLICT DO NOTHING

-- name: unpin
-- Release pinned origins. Requires `lock_shard`.
DELETE FROM {s}pin WHERE ring = :ring AND origin = :origin

-- name: unpin (postgres)
DELETE FROM {s}pin WHERE ring = :ring AND origin = ANY(:origin::text[])

-- name: stored_among
-- Return which of these queues have an inbox row, cut or not, a delayed row or a key within the window.
SELECT q.origin FROM (SELECT :origin AS origin) q
WHERE EXISTS (SELECT 1 FROM {s}mail m WHERE m.ring = :ring AND m.origin = q.origin)
   OR EXISTS (SELECT 1 FROM {s}delayed d WHERE d.ring = :ring AND d.origin = q.origin)
   OR EXISTS (SELECT 1 FROM {s}sent_key k WHERE k.ring = :ring AND k.origin = q.origin AND k.at > :since)

-- name: stored_among (postgres)
SELECT w.origin FROM {each origin text[]}
WHERE EXISTS (SELECT 1 FROM {s}mail m WHERE m.ring = :ring AND m.origin = w.origin)
   OR EXISTS (SELECT 1 FROM {s}delayed d WHERE d.ring = :ring AND d.origin = w.origin)
   OR EXISTS (SELECT 1 FROM {s}sent_key k WHERE k.ring = :ring AND k.origin = w.origin AND k.at > :since)

-- name: keyed_origins
-- Return the origins with keys within the window. Reads all keys of the ring.
SELECT DISTINCT k.origin FROM {s}sent_key k WHERE k.ring = :ring AND k.at > :since AND k.origin <> ''
