-- Of a bounded row of mail, whatever ring it is of: its origins, the first mail of those that have no place in this
-- ring yet, and how far this look went. Takes no lock.
SELECT s.origin, min(CASE WHEN s.ring = :ring AND b.ticket IS NULL AND s.id >= coalesce(b.floor, 0) THEN s.id END),
       max(s.id)
FROM (SELECT m.ring, m.id, m.origin FROM {s}mail m WHERE m.id >= :start ORDER BY m.id LIMIT :limit) s
LEFT JOIN {s}book b ON b.ring = :ring AND b.origin = s.origin
GROUP BY s.origin
