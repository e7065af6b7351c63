-- The ledger, the latest block first. Takes no lock.
SELECT l.block, l.at, l.data FROM {s}ledger l
WHERE l.ring = %(ring)s AND l.block < %(before)s AND l.block >= %(first)s
ORDER BY l.block DESC
LIMIT %(limit)s
