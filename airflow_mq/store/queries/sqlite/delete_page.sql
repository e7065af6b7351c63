-- Remove pages. Under the ring's lock.
DELETE FROM {s}page
WHERE ring = :ring AND origin = :origin AND page = :page
