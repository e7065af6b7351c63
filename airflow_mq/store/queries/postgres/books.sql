-- Books by name; an origin that never had one gets an empty one. Takes no lock.
SELECT o.origin, coalesce(b.begin_page, 0), coalesce(b.end_page, 0), coalesce(b.pages, 0), coalesce(b.messages, 0),
       coalesce(b.size, 0), b.ticket, coalesce(b.deficit, 0), coalesce(b.floor, 0), coalesce(b.ahead, ''), coalesce(b.wake_at, 0),
       EXISTS (
           SELECT FROM {s}pause p
           WHERE p.ring = %(ring)s AND p.origin = o.origin AND (p.until IS NULL OR p.until > %(now)s)
       ) AS paused,
       EXISTS (SELECT FROM {s}claim c WHERE c.ring = %(ring)s AND c.origin = o.origin AND NOT c.by_hand) AS in_flight,
       (SELECT t.settings FROM {s}standing t WHERE t.ring = %(ring)s AND t.origin = o.origin) AS standing
FROM unnest(%(origin)b::text[]) AS o(origin)
LEFT JOIN {s}book b ON b.ring = %(ring)s AND b.origin = o.origin
