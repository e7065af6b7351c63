-- External payloads: blobs by hash, their bytes in chunks or files, uploads and uses.

-- name: insert_upload
-- Begin an upload.
INSERT INTO {s}upload (id, until, path) VALUES (:id, :until, :path)

-- name: set_upload
-- Move the end of an upload if it is in a range; that of a blob is later than all others. A moved end extends the
-- upload, makes it a blob (no end), or abandons it (a past end).
UPDATE {s}upload SET until = :until
WHERE id = :id AND coalesce(until, 9223372036854775807) BETWEEN :since AND :last

-- name: insert_chunk
-- Write chunks of an upload.
INSERT INTO {s}chunk {rows upload, seq int[], data bytea[]}

-- name: insert_blob
-- Turn an upload into the blob of its hash, if there is none or its upload is lost. Waits only for a commit of the same
-- blob.
INSERT INTO {s}blob AS b (hash, size, upload, at) VALUES (:hash, :size, :upload, :now)
ON CONFLICT (hash) DO UPDATE SET upload = excluded.upload WHERE b.upload = :lost

-- name: past_uploads
-- Return abandoned and expired uploads.
SELECT u.id, u.path, u.until FROM {s}upload u WHERE u.until BETWEEN :since AND :now ORDER BY u.until, u.id LIMIT :limit

-- name: delete_chunks
-- Delete some chunks of an abandoned upload.
DELETE FROM {s}chunk
WHERE upload = :upload AND seq IN (SELECT c.seq FROM {s}chunk c WHERE c.upload = :upload ORDER BY c.seq LIMIT :limit)

-- name: delete_upload
-- Delete an abandoned upload without chunks.
DELETE FROM {s}upload WHERE id = :id AND until <= :now

-- part: for_share
-- Share the rows until the end of the transaction with all transactions except the sweep.

-- part: for_share (postgres)
FOR KEY SHARE

-- name: hold_blob
-- Keep a blob until a time, if it exists.
INSERT INTO {s}blob_use (inbox_row, place, hash, until)
SELECT :id, 0, b.hash, :until FROM {s}blob b WHERE b.hash = :hash {part for_share}

-- name: share_blobs
-- Return which of these blobs exist, and keep them until the end of the transaction.
SELECT b.hash FROM {s}blob b WHERE b.hash IN (SELECT w.hash FROM {each hash text[]}) ORDER BY b.hash {part for_share}

-- name: release_blobs
-- End holds on blobs, and the uses of blobs by deleted messages, which requires the ring lock.
UPDATE {s}blob_use AS d SET until = 0
FROM {each inbox_row bigint[], place int[]}
WHERE d.inbox_row = w.inbox_row AND d.place = w.place AND (d.until IS NULL OR d.until > 0)

-- name: lock_blobs
-- Return blobs with a use that has ended, which the sweep may delete: no transaction is about to use them.
SELECT b.hash FROM {s}blob b WHERE b.hash IN (
    SELECT p.hash FROM (
        SELECT u.hash FROM {s}blob_use u WHERE u.until <= :now ORDER BY u.until, u.hash LIMIT :limit
    ) p
) {part for_update}

-- name: delete_past_uses
-- Delete the ended uses of locked blobs.
DELETE FROM {s}blob_use WHERE hash IN (SELECT w.hash FROM {each hash text[]}) AND until <= :now

-- name: delete_unused_blobs
-- Delete locked blobs without a use, and return their uploads.
DELETE FROM {s}blob AS b
WHERE b.hash IN (SELECT w.hash FROM {each hash text[]}) AND NOT EXISTS (SELECT 1 FROM {s}blob_use u WHERE u.hash = b.hash)
RETURNING upload

-- name: blob
-- Return the size of a blob, its upload and its file.
SELECT b.size, b.upload, u.path FROM {s}blob b JOIN {s}upload u ON u.id = b.upload WHERE b.hash = :hash

-- name: chunk
-- Return a chunk of an upload.
SELECT c.data FROM {s}chunk c WHERE c.upload = :upload AND c.seq = :seq

-- name: blobs
-- Return blobs in order of hashes: the uses by messages, the end of the longest hold, all uses and, if wanted, the bytes
-- in chunks.
SELECT b.hash, b.size, u.path, b.at,
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash AND r.until IS NULL),
    (SELECT max(r.until) FROM {s}blob_use r WHERE r.hash = b.hash AND r.until > :now),
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash),
    (SELECT CAST(coalesce(sum(length(c.data)), 0) AS bigint) FROM {s}chunk c WHERE :counted AND c.upload = b.upload)
FROM {s}blob b JOIN {s}upload u ON u.id = b.upload
WHERE b.hash > :after ORDER BY b.hash LIMIT :limit

-- name: all_uses
-- Return every use of a blob, and whether its inbox row exists, delayed or not, or its report.
SELECT u.inbox_row, u.place, u.hash, u.until,
       EXISTS (SELECT 1 FROM {s}inbox m WHERE m.id = u.inbox_row)
       OR EXISTS (SELECT 1 FROM {s}delayed d WHERE d.id = u.inbox_row)
       OR EXISTS (SELECT 1 FROM {s}outcome o WHERE o.id = u.inbox_row)
FROM {s}blob_use u
