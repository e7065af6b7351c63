-- Pause an origin, or pause it differently.
INSERT INTO {s}pause (ring, origin, reason, who, at, until, below)
VALUES (:ring, :origin, :reason, :who, :now, :until, :below)
ON CONFLICT (ring, origin) DO UPDATE SET reason = excluded.reason, who = excluded.who, at = excluded.at, until = excluded.until,
    below = excluded.below
