-- The lines of a block. Under the ring's lock.
INSERT INTO {s}ledger (ring, at, block, data)
SELECT %(ring)s, %(at)s::bigint, w.block, w.data
FROM unnest(%(block)b::bigint[], %(data)b::bytea[]) AS w(block, data)
ON CONFLICT (block) DO NOTHING
