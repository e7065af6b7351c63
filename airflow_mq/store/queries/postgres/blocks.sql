-- Blocks, the latest first. Takes no lock.
SELECT b.id, b.key, b.token, b.state, b.by_hand, b.seconds, b.deadline, b.planned_at, b.ended_at, b.details FROM {s}block b
WHERE b.ring = %(ring)s AND (%(state)s < 0 OR b.state = %(state)s) AND b.id < %(before)s
ORDER BY b.id DESC
LIMIT %(limit)s
