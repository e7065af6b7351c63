-- How many messages of an origin are not due yet, and when the first of them is. Takes no lock.
SELECT CAST(coalesce(sum(d.items), 0) AS bigint), min(d.due) FROM {s}delayed d
WHERE d.ring = :ring AND d.origin = :origin AND d.due > :now
