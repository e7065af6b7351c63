-- Give a ready book a new place in the ring. Under the ring's lock.
UPDATE {s}book SET ticket = :ticket WHERE ring = :ring AND origin = :origin
