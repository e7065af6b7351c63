-- The number of a ring's next block. Under the ring's lock.
UPDATE {s}state SET blocks = blocks + 1 WHERE ring = :ring RETURNING blocks
