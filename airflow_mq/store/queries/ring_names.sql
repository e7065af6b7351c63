-- The names of all rings. Takes no lock.
SELECT r.name FROM {s}ring r ORDER BY r.name
