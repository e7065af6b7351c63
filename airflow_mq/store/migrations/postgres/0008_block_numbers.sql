-- Blocks of a ring are numbered 1, 2, 3 ... What was there before keeps its id as its number, so that events, pages of the
-- ledger, logs and links keep their meaning; a ring that had blocks goes on from the largest of them.

ALTER TABLE {s}block ADD COLUMN number bigint;
UPDATE {s}block SET number = id;
ALTER TABLE {s}block ALTER COLUMN number SET NOT NULL;
CREATE UNIQUE INDEX block_by_number ON {s}block (ring, number);

-- Two rings may have a block of the same number. The id tells what was sent before the block.
ALTER TABLE {s}ledger ADD COLUMN id bigint;
UPDATE {s}ledger SET id = block;
ALTER TABLE {s}ledger ALTER COLUMN id SET NOT NULL;
ALTER TABLE {s}ledger DROP CONSTRAINT ledger_pkey;
ALTER TABLE {s}ledger ADD PRIMARY KEY (ring, block);

-- The number of the ring's latest block.
ALTER TABLE {s}state ADD COLUMN blocks bigint NOT NULL DEFAULT 0;
UPDATE {s}state s SET blocks = greatest(
    (SELECT max(b.id) FROM {s}block b WHERE b.ring = s.ring),
    (SELECT max(l.block) FROM {s}ledger l WHERE l.ring = s.ring),
    (SELECT max(e.block) FROM {s}event e WHERE e.ring = s.ring),
    (SELECT max(a.block) FROM {s}aside a WHERE a.ring = s.ring),
    (SELECT max(a.arrived_block) FROM {s}aside a WHERE a.ring = s.ring),
    0
);
