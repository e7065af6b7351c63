-- Write what a block claimed, in the order of its visits. Under the ring's lock.
INSERT INTO {s}claim (ring, block, by_hand, seq, origin, data)
VALUES (:ring, :block, :by_hand, :seq, :origin, :data)
