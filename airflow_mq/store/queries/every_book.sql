-- All books by name. Takes no lock.
SELECT b.origin FROM {s}book b WHERE b.ring = :ring AND b.origin > :after ORDER BY b.origin LIMIT :limit
