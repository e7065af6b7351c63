-- A ring by its name, and the database's clock, in microseconds. Takes no lock.
SELECT r.id, r.name, r.config, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM {s}ring r WHERE r.name = %(name)s
