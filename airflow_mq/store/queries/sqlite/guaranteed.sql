-- Ready origins that are promised a least. Takes no lock.
SELECT t.origin FROM {s}standing t JOIN {s}book b ON b.ring = t.ring AND b.origin = t.origin
WHERE t.ring = :ring AND t.guaranteed AND b.ticket IS NOT NULL
ORDER BY b.ticket
