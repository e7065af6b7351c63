-- How a ring is set, for who adds queues to one with a bound. Locks the row of the ring against those who add queues, too.
SELECT r.config FROM {s}ring r WHERE r.id = %(ring)s
FOR NO KEY UPDATE
