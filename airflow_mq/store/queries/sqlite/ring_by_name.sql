-- A ring by its name, and the database's clock, in microseconds. Takes no lock.
SELECT r.id, r.name, r.config, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
FROM {s}ring r WHERE r.name = :name
