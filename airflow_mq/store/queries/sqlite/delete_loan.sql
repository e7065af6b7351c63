-- The borrower is gone. Under its ring's lock.
DELETE FROM {s}loan WHERE ring = :ring AND origin = :origin AND mail = :id
