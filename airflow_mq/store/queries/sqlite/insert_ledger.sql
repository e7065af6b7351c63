-- The lines of a block. Under the ring's lock.
INSERT INTO {s}ledger (ring, at, block, data)
VALUES (:ring, :at, :block, :data)
ON CONFLICT (block) DO NOTHING
