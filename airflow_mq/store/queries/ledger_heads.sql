-- The beginnings of the latest pages of the ledger, where each says who serviced the ring. Takes no lock.
SELECT l.block, l.at, substr(l.data, 1, 16384) FROM {s}ledger l
WHERE l.ring = :ring AND l.block < :before
ORDER BY l.block DESC
LIMIT :limit
