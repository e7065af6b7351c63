-- Of a bounded row of mail: its origins, the first mail of those that have no place in the ring yet, and how far this
-- look went. Takes no lock.
SELECT s.origin, min(CASE WHEN b.ticket IS NULL AND s.id >= coalesce(b.floor, 0) THEN s.id END), max(s.id)
FROM (SELECT m.id, m.origin FROM {s}mail m WHERE m.ring = %(ring)s AND m.id >= %(start)s ORDER BY m.id LIMIT %(limit)s) s
LEFT JOIN {s}book b ON b.ring = %(ring)s AND b.origin = s.origin
GROUP BY s.origin
