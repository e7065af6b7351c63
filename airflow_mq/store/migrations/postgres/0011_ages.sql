-- Each round of service writes the rows of books and of the ring's state again. While any session holds an old snapshot,
-- the server keeps all their versions, and a lookup by key visits each of them. So the key contains an age, which falls
-- with each write. The newest version comes first in the index, and a lookup ends there.

ALTER TABLE {s}book ADD COLUMN age bigint NOT NULL DEFAULT 0;
ALTER TABLE {s}book DROP CONSTRAINT book_pkey;
ALTER TABLE {s}book ADD PRIMARY KEY (ring, origin, age);

-- No live block has a smaller id than `oldest_block`: what blocks before it have left is not read again.
ALTER TABLE {s}state ADD COLUMN age bigint NOT NULL DEFAULT 0, ADD COLUMN oldest_block bigint NOT NULL DEFAULT 0;
ALTER TABLE {s}state DROP CONSTRAINT state_pkey;
ALTER TABLE {s}state ADD PRIMARY KEY (ring, age);

DROP INDEX {s}block_live;
CREATE INDEX block_live ON {s}block (ring, id) WHERE state = 0;
DROP INDEX {s}claim_by_origin;
CREATE INDEX claim_by_origin ON {s}claim (ring, origin, block);
