-- What the sender said of the messages of a mail; only where it said anything. Takes no lock.
SELECT m.origin, m.id, m.attributes
FROM {s}mail m
WHERE m.ring = :ring AND m.origin = :origin AND m.id = :id AND m.attributes <> x''
