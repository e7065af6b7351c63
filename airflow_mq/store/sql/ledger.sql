-- The ledger: how each block's capacity was divided among origins.

-- name: insert_ledger
-- Write the entry of a block. Requires the ring lock.
INSERT INTO {s}ledger {rows ring, at bigint, block bigint[], id bigint[], data bytea[]}
ON CONFLICT (ring, block) DO NOTHING

-- name: ledger
-- Return the entries of a range of blocks, the latest first.
SELECT l.block, l.at, l.data, l.id FROM {s}ledger l
WHERE l.ring = :ring AND l.block < :before AND l.block >= :first
ORDER BY l.block DESC
LIMIT :limit

-- name: ledger_heads
-- Return the beginnings of the latest entries, where each names the process that serviced the ring.
SELECT l.block, l.at, substr(l.data, 1, 16384) FROM {s}ledger l
WHERE l.ring = :ring AND l.block < :before
ORDER BY l.block DESC
LIMIT :limit

-- name: expire_ledger
-- Delete entries after a time, and at or before another.
DELETE FROM {s}ledger WHERE ring = :ring AND at > :after AND at <= :before
