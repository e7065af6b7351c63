-- Origins by how many messages they have, the most first. Takes no lock.
SELECT f.origin, sum(f.messages) FROM (
    SELECT b.origin, b.messages FROM {s}book b WHERE b.ring = :ring AND b.messages > 0
    UNION ALL
    SELECT m.origin, m.items FROM {s}mail m LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
    WHERE m.ring = :ring AND m.id >= coalesce(b.floor, 0)
) f
WHERE :text = '' OR instr(f.origin, :text) > 0
GROUP BY f.origin
ORDER BY 2 DESC, f.origin
LIMIT :limit
