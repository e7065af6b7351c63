-- Origins by name that have mail which is not due. Reads all such mail. Takes no lock.
SELECT DISTINCT d.origin FROM {s}delayed d
WHERE d.ring = :ring AND d.origin >= :first AND d.origin < :below
LIMIT :limit
