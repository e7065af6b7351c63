-- All books by name, with what a survey adds up. Reads on from one. Takes no lock.
SELECT b.origin, b.messages, b.size, b.floor, b.ahead,
       CASE WHEN b.ticket IS NOT NULL THEN (
           SELECT p.first_mail FROM {s}page p
           WHERE p.ring = b.ring AND p.origin = b.origin AND p.page >= b.begin_page ORDER BY p.page LIMIT 1) END
FROM {s}book b
WHERE b.ring = :ring AND b.origin > :after
ORDER BY b.origin
LIMIT :limit
