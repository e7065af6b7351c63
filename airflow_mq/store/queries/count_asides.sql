-- How many messages wait for a person, in at most so many pages. Takes no lock.
SELECT coalesce(CAST(sum(k.kept) AS bigint), 0)
FROM (SELECT p.kept FROM {s}page p WHERE p.ring = :ring AND p.kept > 0 LIMIT :limit) k
