-- Everything that is in flight. Takes no lock.
SELECT c.origin, c.data, c.block, b.state FROM {s}claim c LEFT JOIN {s}block b ON b.id = c.block WHERE c.ring = :ring ORDER BY c.block, c.seq
