-- How an origin is served. Takes no lock.
SELECT t.settings FROM {s}standing t WHERE t.ring = :ring AND t.origin = :origin
