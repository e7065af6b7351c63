-- Idempotency keys.

-- name: claim_key
-- Claim a key of an origin, unless it was used within the window. A key that was stored before keys had origins
-- counts if its digest is the same: the digest covers the origin.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at)
SELECT :ring, :key, :origin, :digest, :now
WHERE NOT EXISTS (
    SELECT 1 FROM {s}sent_key o WHERE o.ring = :ring AND o.key = :key AND o.origin = ''
        AND o.digest = :old_digest AND o.at > :now - :window
)
ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= :now - :window

-- name: claim_key (postgres)
-- Wait for an open transaction that claims the same key.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at)
SELECT :ring, :key, :origin, :digest, :now
WHERE NOT EXISTS (
    SELECT 1 FROM {s}sent_key o WHERE o.ring = :ring AND o.key = :key AND o.origin = ''
        AND o.digest = :old_digest AND o.at > :now::bigint - :window::bigint
)
ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at
WHERE k.at <= :now::bigint - :window::bigint

-- name: key_digest
-- Return the digest of the message that used a key of an origin, or used it before keys had origins.
SELECT k.digest FROM {s}sent_key k WHERE k.ring = :ring AND k.key = :key AND k.origin IN (:origin, '')
ORDER BY k.origin DESC LIMIT 1

-- name: key_chunks
-- Return the digests of rows that a sender enqueued in chunks, in order; chunks belong to no single origin.
SELECT k.key, k.digest FROM {s}sent_key k
WHERE k.ring = :ring AND k.key >= :first AND k.key < :last AND k.origin = '' AND k.at > :since
ORDER BY k.key

-- name: expire_key
-- Delete keys that were used after a time, and at or before another.
DELETE FROM {s}sent_key WHERE ring = :ring AND at > :after AND at <= :before
