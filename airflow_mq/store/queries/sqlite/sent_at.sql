-- When a mail was sent. Takes no lock.
SELECT m.id, m.sent_at FROM {s}mail m WHERE m.ring = :ring AND m.origin = :origin AND m.id = :id
