-- Nothing more will be reported to a block that still lives: it may be settled as soon as this is committed.
UPDATE {s}block SET deadline = :now WHERE ring = :ring AND token = :token AND state = 0 AND deadline > :now
