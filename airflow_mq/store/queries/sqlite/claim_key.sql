-- Claim an idempotency key of an origin, unless it was used within the window.
-- A key stored before keys had origins counts if its digest, which covers the origin, is the same.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at)
SELECT :ring, :key, :origin, :digest, :now
WHERE NOT EXISTS (
    SELECT 1 FROM {s}sent_key o WHERE o.ring = :ring AND o.key = :key AND o.origin = ''
        AND o.digest = :digest AND o.at > :now - :window
)
ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= :now - :window
