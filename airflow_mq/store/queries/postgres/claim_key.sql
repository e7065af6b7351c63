-- Use an idempotency key, unless somebody did within the window; waits for a sender who is at it.
INSERT INTO {s}sent_key AS k (ring, key, digest, at) VALUES (%(ring)s, %(key)s, %(digest)b, %(now)s)
ON CONFLICT (ring, key) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= %(now)s - %(window)s
