-- Remove mail that no page needs any more. Under the ring's lock.
DELETE FROM {s}mail
WHERE ring = :ring AND origin = :origin AND id = :id
