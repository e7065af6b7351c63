-- Idempotency keys.

-- name: claim_key
-- Claim a key of an origin, unless it was used within the window.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at) VALUES (:ring, :key, :origin, :digest, :now)
ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= :now - :window

-- name: claim_key (postgres)
-- Wait for an open transaction that claims the same key.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at) VALUES (:ring, :key, :origin, :digest, :now)
ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at
WHERE k.at <= :now::bigint - :window::bigint

-- name: key_digest
-- Return the digest of the message that used a key of an origin.
SELECT k.digest FROM {s}sent_key k WHERE k.ring = :ring AND k.key = :key AND k.origin = :origin

-- name: key_chunks
-- Return the digests of rows that a sender enqueued in chunks, in order; chunks belong to no single origin.
SELECT k.key, k.digest FROM {s}sent_key k
WHERE k.ring = :ring AND k.key >= :first AND k.key < :last AND k.origin = '' AND k.at > :since
ORDER BY k.key

-- name: expire_key
-- Delete the oldest keys that were used after a time, and at or before another, at most `limit` rows.
DELETE FROM {s}sent_key WHERE rowid IN (
    SELECT k.rowid FROM {s}sent_key k WHERE k.ring = :ring AND k.at > :after AND k.at <= :before ORDER BY k.at LIMIT :limit
)

-- name: expire_key (postgres)
-- Skip the keys that an open transaction of a sender uses again: it may stay open for hours.
DELETE FROM {s}sent_key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM {s}sent_key k WHERE k.ring = :ring AND k.at > :after AND k.at <= :before
    ORDER BY k.at LIMIT :limit FOR UPDATE SKIP LOCKED
))
