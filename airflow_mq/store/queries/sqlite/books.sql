-- A book by name; an origin that never had one gets an empty one. Takes no lock.
SELECT o.origin, coalesce(b.begin_page, 0), coalesce(b.end_page, 0), coalesce(b.pages, 0), coalesce(b.messages, 0),
       coalesce(b.size, 0), b.ticket, coalesce(b.deficit, 0), coalesce(b.floor, 0), coalesce(b.ahead, x''), coalesce(b.wake_at, 0),
       EXISTS (
           SELECT 1 FROM {s}pause p
           WHERE p.ring = :ring AND p.origin = ltrim(o.origin, char(1)) AND (p.until IS NULL OR p.until > :now)
       ) AS paused,
       EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin IN (ltrim(o.origin, char(1)), char(1) || ltrim(o.origin, char(1))) AND NOT c.by_hand) AS in_flight,
       (SELECT t.settings FROM {s}standing t WHERE t.ring = :ring AND t.origin = ltrim(o.origin, char(1))) AS standing
FROM (SELECT :origin AS origin) o
LEFT JOIN {s}book b ON b.ring = :ring AND b.origin = o.origin
