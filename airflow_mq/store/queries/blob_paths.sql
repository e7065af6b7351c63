-- The settings of all rings, which name the folders that payloads may lie in. Takes no lock.
SELECT r.config FROM {s}ring r ORDER BY r.id
