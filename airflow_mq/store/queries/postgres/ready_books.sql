-- Ready books in the ring's order, from a ticket on. Takes no lock.
-- (Not EXISTS: that may be answered by reading everything that is in flight into memory.)
SELECT b.origin, b.begin_page, b.end_page, b.pages, b.messages, b.size, b.ticket, b.deficit, b.floor, b.ahead, b.wake_at,
       coalesce((
           SELECT true FROM {s}pause p
           WHERE p.ring = %(ring)s AND p.origin = ltrim(b.origin, E'\x01') AND (p.until IS NULL OR p.until > %(now)s)
       ), false) AS paused,
       coalesce((
           SELECT true FROM {s}claim c WHERE c.ring = %(ring)s AND c.origin IN (ltrim(b.origin, E'\x01'), E'\x01' || ltrim(b.origin, E'\x01')) AND NOT c.by_hand LIMIT 1
       ), false) AS in_flight,
       (SELECT t.settings FROM {s}standing t WHERE t.ring = %(ring)s AND t.origin = ltrim(b.origin, E'\x01')) AS standing
FROM {s}book b
WHERE b.ring = %(ring)s AND b.ticket > %(after)s
ORDER BY b.ticket, b.origin
LIMIT %(limit)s
