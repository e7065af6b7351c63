-- Claim an idempotency key of an origin, unless it was used within the window; waits for an open transaction that has it.
-- A key stored before keys had origins counts if its digest, which covers the origin, is the same.
INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at)
SELECT %(ring)s, %(key)s, %(origin)s, %(digest)b, %(now)s
WHERE NOT EXISTS (
    SELECT 1 FROM {s}sent_key o WHERE o.ring = %(ring)s AND o.key = %(key)s AND o.origin = ''
        AND o.digest = %(digest)b AND o.at > %(now)s::bigint - %(window)s::bigint
)
ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at
WHERE k.at <= %(now)s::bigint - %(window)s::bigint
