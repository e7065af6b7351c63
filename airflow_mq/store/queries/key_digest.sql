-- The digest of the message that used a key of an origin, or used it before keys had origins. Takes no lock.
SELECT k.digest FROM {s}sent_key k WHERE k.ring = :ring AND k.key = :key AND k.origin IN (:origin, '')
ORDER BY k.origin DESC LIMIT 1
