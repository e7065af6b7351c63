-- The version of the schema. Takes no lock.
SELECT max(m.version) FROM {s}migration m
