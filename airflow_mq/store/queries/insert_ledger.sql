-- The lines of a block. Under the ring's lock.
INSERT INTO {s}ledger {rows ring, at bigint, block bigint[], id bigint[], data bytea[]}
ON CONFLICT (ring, block) DO NOTHING
