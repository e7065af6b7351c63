-- A block lives for longer, if it still lives.
UPDATE {s}block SET deadline = :deadline WHERE ring = :ring AND token = :token AND state = 0 AND deadline > :now
