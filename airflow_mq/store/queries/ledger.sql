-- The ledger, the latest block first. Takes no lock.
SELECT l.block, l.at, l.data, l.id FROM {s}ledger l
WHERE l.ring = :ring AND l.block < :before AND l.block >= :first
ORDER BY l.block DESC
LIMIT :limit
