-- Forget blocks that ended long ago.
DELETE FROM {s}block WHERE ring = :ring AND state <> 0 AND ended_at <= :before
