-- Ready books in the ring's order, from a ticket on. Takes no lock.
-- (CASE looks no further than it must: what a ring does not use costs nothing more.)
SELECT b.origin, b.begin_page, b.end_page, b.pages, b.messages, b.size, b.ticket, b.deficit, b.floor, b.ahead, b.wake_at,
       CASE WHEN EXISTS (SELECT 1 FROM {s}pause WHERE ring = :ring) THEN EXISTS (
           SELECT 1 FROM {s}pause p
           WHERE p.ring = :ring AND p.origin = ltrim(b.origin, char(1)) AND (p.until IS NULL OR p.until > :now)
       ) ELSE 0 END AS paused,
       CASE
           WHEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = b.origin AND NOT c.by_hand) THEN 1
           WHEN b.origin < char(2)
           THEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = substr(b.origin, 2) AND NOT c.by_hand)
           WHEN EXISTS (SELECT 1 FROM {s}claim WHERE ring = :ring AND origin < char(2))
           THEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = char(1) || b.origin AND NOT c.by_hand)
           ELSE 0
       END AS in_flight,
       CASE WHEN EXISTS (SELECT 1 FROM {s}standing WHERE ring = :ring) THEN (
           SELECT t.settings FROM {s}standing t WHERE t.ring = :ring AND t.origin = ltrim(b.origin, char(1))
       ) END AS standing
FROM {s}book b
WHERE b.ring = :ring AND b.ticket > :after
ORDER BY b.ticket, b.origin
LIMIT :limit
