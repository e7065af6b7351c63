-- Origins that are promised a least, ready ones first: others may have mail that is in no page yet. Takes no lock.
SELECT t.origin FROM {s}standing t LEFT JOIN {s}book b ON b.ring = t.ring AND b.origin = t.origin
WHERE t.ring = :ring AND t.guaranteed
ORDER BY b.ticket IS NULL, b.ticket, t.origin
