-- A block by its token. Takes no lock.
SELECT b.id, b.number, b.key, b.token, b.state, b.by_hand, b.seconds, b.deadline, b.planned_at, b.ended_at, b.details FROM {s}block b WHERE b.ring = :ring AND b.token = :token
