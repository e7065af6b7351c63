-- Report outcomes to a block that still lives.
INSERT INTO {s}outcome (id, block, data)
SELECT :id, b.id, :data FROM {s}block b
WHERE b.ring = :ring AND b.token = :token AND b.state = 0 AND b.deadline > :now
