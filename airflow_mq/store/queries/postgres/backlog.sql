-- Origins by how many messages they have, the most first. Takes no lock.
SELECT f.origin, sum(f.messages)::bigint FROM (
    SELECT b.origin, b.messages FROM {s}book b WHERE b.ring = %(ring)s AND b.messages > 0
    UNION ALL
    SELECT m.origin, m.items FROM {s}mail m LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
    WHERE m.ring = %(ring)s AND m.id >= coalesce(b.floor, 0)
) f
WHERE %(text)s::text = '' OR strpos(f.origin, %(text)s) > 0
GROUP BY f.origin
ORDER BY 2 DESC, f.origin
LIMIT %(limit)s
