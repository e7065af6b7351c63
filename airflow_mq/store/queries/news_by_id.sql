-- Origins that are not ready and have mail among these ids, with their first one. Takes no lock.
SELECT m.origin, min(m.id)
FROM {s}mail m
LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
WHERE m.ring = :ring AND m.id >= :start AND m.id < :below
  AND b.ticket IS NULL AND m.id >= coalesce(b.floor, 0)
GROUP BY m.origin
ORDER BY 2
