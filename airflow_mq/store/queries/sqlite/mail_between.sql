-- The ids of an origin's mail in a range. Takes no lock.
SELECT :origin, group_concat(m.id) FROM {s}mail m
WHERE m.ring = :ring AND m.origin = :origin AND m.id >= :first AND m.id < :below
