-- A block holds nothing any more. Under the ring's lock.
DELETE FROM {s}claim WHERE block = :block
