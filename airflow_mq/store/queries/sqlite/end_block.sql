-- A block ends: settled or released. Under the ring's lock.
UPDATE {s}block SET state = :state, ended_at = :now, details = :details WHERE id = :block AND state = 0
