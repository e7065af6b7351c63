-- A ring by its name. Takes no lock.
SELECT r.id, r.name, r.config FROM {s}ring r WHERE r.name = :name
