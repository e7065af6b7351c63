-- Use an idempotency key, unless somebody did within the window.
INSERT INTO {s}sent_key AS k (ring, key, digest, at) VALUES (:ring, :key, :digest, :now)
ON CONFLICT (ring, key) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= :now - :window
