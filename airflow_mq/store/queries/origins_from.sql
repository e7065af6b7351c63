-- Origins by name, from one on: those with a book and those that only have mail. Takes no lock.
SELECT b.origin FROM {s}book b
WHERE b.ring = :ring AND b.origin > :after AND b.origin >= :first AND b.origin < :below AND (b.pages > 0 OR b.ticket IS NOT NULL)
ORDER BY b.origin
LIMIT :limit
