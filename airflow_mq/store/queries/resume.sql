-- Resume an origin.
DELETE FROM {s}pause WHERE ring = :ring AND origin = :origin
