-- What a key was used for. Takes no lock.
SELECT k.digest FROM {s}sent_key k WHERE k.ring = :ring AND k.key = :key
