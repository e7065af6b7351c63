-- Idempotency keys.

-- name: claim_key
-- Claim a key of an origin, unless it was used within the window. Waits for an open transaction that claims the same key.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at) VALUES (:ring, :key, :origin, :digest, :now)
ON CONFLICT (ring, key, origin) DO UPDATE SET {set excluded digest, at}
WHERE k.at <= CAST(:now AS bigint) - CAST(:window AS bigint)

-- name: used_keys
-- Return the keys of an origin in a range that were used after a time, in order, and the digests of what they sent.
SELECT k.key, k.digest FROM {s}sent_key k
WHERE k.ring = :ring AND k.key >= :first AND k.key <= :last AND k.origin = :origin AND k.at > :since
ORDER BY k.key

-- name: expire_key
-- Delete the keys that were used longest ago.
DELETE FROM {s}sent_key WHERE rowid IN (SELECT e.rowid FROM {s}sent_key e {part oldest})

-- name: expire_key (postgres)
-- Skip the keys that an open transaction of a sender uses again: it may stay open for hours.
DELETE FROM {s}sent_key WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM {s}sent_key e {part oldest}))
