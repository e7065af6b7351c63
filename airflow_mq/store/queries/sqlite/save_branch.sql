-- Write groups as they stand; what others charged meanwhile counts, too. Under the ring's lock.
INSERT INTO {s}branch (ring, path, deficit, level, owed) VALUES (:ring, :path, :deficit, :level, :owed)
ON CONFLICT (ring, path) DO UPDATE SET
    deficit = deficit + :delta,
    level = min(level, excluded.level),
    owed = excluded.owed
