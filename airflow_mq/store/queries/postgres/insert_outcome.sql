-- What was reported to a block that this transaction has closed.
INSERT INTO {s}outcome (id, block, data) VALUES (%(id)s, %(block)s, %(data)b)
