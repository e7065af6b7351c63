-- External payloads: blobs by hash, their bytes in chunks or files, uploads and uses.

-- name: insert_upload
-- Begin an upload.
INSERT INTO {s}upload (id, until, path) VALUES (:id, :until, :path)

-- name: renew_upload
-- Extend an upload, unless it has expired.
UPDATE {s}upload SET until = :until WHERE id = :id AND until > :now

-- name: insert_chunk
-- Write chunks of an upload.
INSERT INTO {s}chunk {rows upload, seq int[], data bytea[]}

-- name: insert_blob
-- Turn an upload into the blob of its hash, if there is none. Waits only for a commit of the same blob.
INSERT INTO {s}blob (hash, size, upload, at) VALUES (:hash, :size, :upload, :now) ON CONFLICT DO NOTHING

-- name: end_upload
-- End an upload: it became a blob (no time) or is abandoned (a time).
UPDATE {s}upload SET until = :until WHERE id = :id

-- name: past_uploads
-- Return abandoned and expired uploads.
SELECT u.id, u.path FROM {s}upload u WHERE u.until <= :now ORDER BY u.until, u.id LIMIT :limit

-- name: delete_chunks
-- Delete some chunks of an abandoned upload.
DELETE FROM {s}chunk
WHERE upload = :upload AND seq IN (SELECT c.seq FROM {s}chunk c WHERE c.upload = :upload ORDER BY c.seq LIMIT :limit)

-- name: delete_upload
-- Delete an abandoned upload without chunks.
DELETE FROM {s}upload WHERE id = :id AND until <= :now

-- name: hold_blob
-- Keep a blob until a time, if it exists.
INSERT INTO {s}blob_use (inbox_row, place, hash, until) SELECT :id, 0, b.hash, :until FROM {s}blob b WHERE b.hash = :hash

-- name: hold_blob (postgres)
-- Share its row with all transactions except the sweep.
INSERT INTO {s}blob_use (inbox_row, place, hash, until)
SELECT :id, 0, b.hash, :until FROM {s}blob b WHERE b.hash = :hash FOR KEY SHARE

-- name: drop_hold
-- End a hold on a blob.
UPDATE {s}blob_use SET until = 0 WHERE inbox_row = :id AND until > 0

-- name: share_blobs
-- Return which of these blobs exist.
SELECT b.hash FROM {s}blob b WHERE b.hash = :hash

-- name: share_blobs (postgres)
-- Keep them until the end of the transaction; share their rows with all transactions except the sweep.
SELECT b.hash FROM {s}blob b WHERE b.hash = ANY(:hash::text[]) ORDER BY b.hash FOR KEY SHARE

-- name: release_blobs
-- End the uses of blobs by deleted messages. Requires the ring lock.
UPDATE {s}blob_use SET until = 0 WHERE inbox_row = :inbox_row AND place = :place AND until IS NULL

-- name: release_blobs (postgres)
UPDATE {s}blob_use d SET until = 0
FROM {each inbox_row bigint[], place int[]}
WHERE d.inbox_row = w.inbox_row AND d.place = w.place AND d.until IS NULL

-- name: past_uses
-- Return blobs with a use that has ended.
SELECT DISTINCT p.hash FROM (
    SELECT u.hash FROM {s}blob_use u WHERE u.until <= :now ORDER BY u.until, u.hash LIMIT :limit
) AS p

-- name: lock_blobs
-- Return which of these blobs the sweep may delete.
SELECT b.hash FROM {s}blob b WHERE b.hash = :hash

-- name: lock_blobs (postgres)
-- Lock them; skip blobs that a transaction is about to use.
SELECT b.hash FROM {s}blob b WHERE b.hash = ANY(:hash::text[]) FOR UPDATE SKIP LOCKED

-- name: delete_past_uses
-- Delete the ended uses of locked blobs.
DELETE FROM {s}blob_use WHERE hash = :hash AND until <= :now

-- name: delete_past_uses (postgres)
DELETE FROM {s}blob_use WHERE hash = ANY(:hash::text[]) AND until <= :now

-- name: delete_unused_blobs
-- Delete locked blobs without a use, and return their uploads.
DELETE FROM {s}blob WHERE hash = :hash AND NOT EXISTS (SELECT 1 FROM {s}blob_use u WHERE u.hash = :hash)
RETURNING upload

-- name: delete_unused_blobs (postgres)
DELETE FROM {s}blob b
WHERE b.hash = ANY(:hash::text[]) AND NOT EXISTS (SELECT FROM {s}blob_use u WHERE u.hash = b.hash)
RETURNING b.upload

-- name: blob
-- Return the size of a blob, its upload and its file.
SELECT b.size, b.upload, u.path FROM {s}blob b JOIN {s}upload u ON u.id = b.upload WHERE b.hash = :hash

-- name: chunk
-- Return a chunk of an upload.
SELECT c.data FROM {s}chunk c WHERE c.upload = :upload AND c.seq = :seq

-- name: blobs
-- Return blobs in order of hashes, with the number of their uses and the end of their longest hold.
SELECT b.hash, b.size, u.path, b.at,
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash AND r.until IS NULL),
    (SELECT max(r.until) FROM {s}blob_use r WHERE r.hash = b.hash AND r.until > :now)
FROM {s}blob b JOIN {s}upload u ON u.id = b.upload
WHERE b.hash > :after ORDER BY b.hash LIMIT :limit

-- name: all_blobs
-- Return every blob, with its stored bytes and the number of its uses.
SELECT b.hash, b.size, b.upload, u.path,
    (SELECT coalesce(sum(length(c.data)), 0) FROM {s}chunk c WHERE c.upload = b.upload),
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash)
FROM {s}blob b JOIN {s}upload u ON u.id = b.upload

-- name: all_blobs (postgres)
SELECT b.hash, b.size, b.upload, u.path,
    (SELECT coalesce(sum(octet_length(c.data)), 0)::bigint FROM {s}chunk c WHERE c.upload = b.upload),
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash)
FROM {s}blob b JOIN {s}upload u ON u.id = b.upload

-- name: all_uses
-- Return every use of a blob, and whether its inbox row exists, delayed or not.
SELECT u.inbox_row, u.place, u.hash, u.until,
       EXISTS (SELECT 1 FROM {s}inbox m WHERE m.id = u.inbox_row)
       OR EXISTS (SELECT 1 FROM {s}delayed d WHERE d.id = u.inbox_row)
FROM {s}blob_use u
