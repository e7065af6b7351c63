-- Ready books in the ring's order, from a ticket on. Takes no lock.
SELECT b.origin, b.begin_page, b.end_page, b.pages, b.messages, b.size, b.ticket, b.deficit, b.floor, b.ahead, b.wake_at,
       EXISTS (
           SELECT 1 FROM {s}pause p
           WHERE p.ring = :ring AND p.origin = ltrim(b.origin, char(1)) AND (p.until IS NULL OR p.until > :now)
       ) AS paused,
       EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin IN (ltrim(b.origin, char(1)), char(1) || ltrim(b.origin, char(1))) AND NOT c.by_hand) AS in_flight,
       (SELECT t.settings FROM {s}standing t WHERE t.ring = :ring AND t.origin = ltrim(b.origin, char(1))) AS standing
FROM {s}book b
WHERE b.ring = :ring AND b.ticket > :after
ORDER BY b.ticket, b.origin
LIMIT :limit
