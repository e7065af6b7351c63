-- Pages that a sweep leaves behind keep all that is left in them. Under the ring's lock.
UPDATE {s}page SET kept = remaining WHERE ring = :ring AND origin = :origin AND page >= :first
