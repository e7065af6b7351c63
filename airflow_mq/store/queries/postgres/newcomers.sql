-- Of a bounded row of mail: its origins, the first mail of those that have no place in the ring yet, and how far this
-- look went. Takes no lock.
SELECT s.origin, min(CASE WHEN b.ticket IS NULL AND s.id >= coalesce(b.floor, 0) THEN s.id END), max(s.id)
FROM (SELECT m.id, m.origin FROM {s}mail m WHERE m.ring = %(ring)s AND m.id >= %(start)s ORDER BY m.id LIMIT %(limit)s) s
LEFT JOIN LATERAL (
  SELECT k.ticket, k.floor FROM {s}book k WHERE k.ring = %(ring)s AND k.origin = s.origin LIMIT 1
) b ON true
GROUP BY s.origin
