-- Report outcomes to a block that still lives; keeps it from ending before this transaction does.
WITH live AS (
    SELECT b.id FROM {s}block b
    WHERE b.ring = %(ring)s AND b.token = %(token)b AND b.state = 0 AND b.deadline > %(now)s
    FOR KEY SHARE
)
INSERT INTO {s}outcome (block, data) SELECT live.id, %(data)b FROM live
