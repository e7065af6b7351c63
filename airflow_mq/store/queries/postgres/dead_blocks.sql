-- Blocks whose deadline has passed, but for those that somebody is completing in a transaction of their own
-- right now: nobody waits for that. Locks the others for a moment.
SELECT b.id, b.number, b.key, b.token, b.state, b.by_hand, b.seconds, b.deadline, b.planned_at, b.ended_at, b.details FROM {s}block b WHERE b.ring = %(ring)s AND b.state = 0 AND b.deadline <= %(now)s ORDER BY b.id FOR UPDATE SKIP LOCKED
