-- Forget blocks that ended long ago.
DELETE FROM {s}block WHERE ring = %(ring)s AND state <> 0 AND ended_at <= %(before)s
