-- What live blocks hold of an origin. Takes no lock.
SELECT c.origin, c.data FROM {s}claim c
WHERE c.ring = :ring AND c.origin = :origin
