-- Paused origins. Takes no lock.
SELECT p.origin, p.reason, p.who, p.at, p.until, p.below FROM {s}pause p WHERE p.ring = %(ring)s AND (p.until IS NULL OR p.until > %(now)s) ORDER BY p.origin
