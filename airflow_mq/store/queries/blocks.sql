-- Blocks, the latest first. Takes no lock.
SELECT b.id, b.number, b.key, b.token, b.state, b.by_hand, b.seconds, b.deadline, b.planned_at, b.ended_at, b.details FROM {s}block b
WHERE b.ring = :ring AND (:state < 0 OR b.state = :state) AND b.number < :before
ORDER BY b.number DESC
LIMIT :limit
