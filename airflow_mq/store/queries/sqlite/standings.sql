-- What is set under some names, for queues and groups. Takes no lock.
SELECT t.origin, t.settings FROM {s}standing t WHERE t.ring = :ring AND t.origin = :origin
