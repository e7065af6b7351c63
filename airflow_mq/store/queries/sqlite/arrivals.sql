-- When a mail was sent, and the first block that was planned after that. Takes no lock.
SELECT m.origin, m.id, m.sent_at, (
    SELECT b.number FROM {s}block b WHERE b.ring = :ring AND b.id > m.id AND NOT b.by_hand ORDER BY b.id LIMIT 1
)
FROM {s}mail m
WHERE m.ring = :ring AND m.origin = :origin AND m.id = :id
