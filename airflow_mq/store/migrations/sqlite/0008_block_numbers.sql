-- Blocks of a ring are numbered 1, 2, 3 ... What was there before keeps its id as its number, so that events, pages of the
-- ledger, logs and links keep their meaning; a ring that had blocks goes on from the largest of them.

ALTER TABLE {s}block ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
UPDATE {s}block SET number = id;
CREATE UNIQUE INDEX {s}block_by_number ON {s}block (ring, number);

-- Two rings may have a block of the same number. The id tells what was sent before the block.
CREATE TABLE {s}ledger_by_number (
    ring INTEGER NOT NULL,
    block INTEGER NOT NULL,
    id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ring, block)
) STRICT;
INSERT INTO {s}ledger_by_number (ring, block, id, at, data) SELECT ring, block, block, at, data FROM {s}ledger;
DROP TABLE {s}ledger;
ALTER TABLE {s}ledger_by_number RENAME TO {s}ledger;
CREATE INDEX {s}ledger_by_time ON {s}ledger (ring, at);

-- The number of the ring's latest block.
ALTER TABLE {s}state ADD COLUMN blocks INTEGER NOT NULL DEFAULT 0;
UPDATE {s}state AS s SET blocks = max(
    coalesce((SELECT max(b.id) FROM {s}block b WHERE b.ring = s.ring), 0),
    coalesce((SELECT max(l.block) FROM {s}ledger l WHERE l.ring = s.ring), 0),
    coalesce((SELECT max(e.block) FROM {s}event e WHERE e.ring = s.ring), 0),
    coalesce((SELECT max(a.block) FROM {s}aside a WHERE a.ring = s.ring), 0),
    coalesce((SELECT max(a.arrived_block) FROM {s}aside a WHERE a.ring = s.ring), 0)
);
