-- Paused origins. Takes no lock.
SELECT p.origin, p.reason, p.who, p.at, p.until, p.below FROM {s}pause p WHERE p.ring = :ring AND (p.until IS NULL OR p.until > :now) ORDER BY p.origin
