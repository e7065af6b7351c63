-- The ledger: how each block's capacity was divided among origins.

-- name: insert_ledger
-- Write the entry of a block. Requires the ring lock.
INSERT INTO {s}ledger {rows ring, at bigint, block bigint[], id bigint[], data bytea[]}
ON CONFLICT (ring, block) DO NOTHING

-- name: insert_round (postgres)
-- Draw an id as `fresh_ids` does, count a block as `next_block` does, and write the entry. Requires the ring lock.
WITH drawn AS MATERIALIZED (
    SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('{s}id_seq') END AS id
), counted AS (
    UPDATE {s}ring_state SET blocks = blocks + 1, oldest_block = coalesce({part first_live}, (SELECT d.id FROM drawn d))
    WHERE {part newest}
    RETURNING blocks
)
INSERT INTO {s}ledger (ring, at, block, id, data)
SELECT :ring, :at, c.blocks, d.id, :data FROM counted c CROSS JOIN drawn d
ON CONFLICT (ring, block) DO NOTHING

-- name: ledger
-- Return the first bytes of the entries of a range of blocks, the latest first.
SELECT l.block, l.at, substr(l.data, 1, CAST(:bytes AS int)), l.id FROM {s}ledger l
WHERE l.ring = :ring AND l.block < :before AND l.block >= :first
ORDER BY l.block DESC
LIMIT :limit

-- name: expire_ledger
-- Delete the oldest entries.
DELETE FROM {s}ledger WHERE rowid IN (SELECT e.rowid FROM {s}ledger e {part oldest})

-- name: expire_ledger (postgres)
DELETE FROM {s}ledger WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM {s}ledger e {part oldest}))
