-- What is in no queue: messages that are not due yet, and those that wait for a person. Takes no lock.
SELECT coalesce((SELECT CAST(sum(d.items) AS bigint) FROM {s}delayed d WHERE d.ring = :ring), 0),
       coalesce((SELECT CAST(sum(p.kept) AS bigint) FROM {s}page p WHERE p.ring = :ring AND p.kept > 0), 0)
