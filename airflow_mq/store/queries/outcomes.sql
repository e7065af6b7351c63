-- What was reported to a block. Takes no lock.
SELECT o.data FROM {s}outcome o WHERE o.block = :block ORDER BY o.id
