-- What was reported to a block that this transaction has closed.
INSERT INTO {s}outcome (id, block, data) VALUES (:id, :block, :data)
