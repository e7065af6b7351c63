-- What a block holds, in the order of its visits. Takes no lock.
SELECT c.origin, c.data FROM {s}claim c WHERE c.block = :block ORDER BY c.seq
