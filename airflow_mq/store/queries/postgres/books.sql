-- Books by name; an origin that never had one gets an empty one. Takes no lock.
-- (Not EXISTS: that may be answered by reading everything that is in flight into memory.)
SELECT o.origin, coalesce(b.begin_page, 0), coalesce(b.end_page, 0), coalesce(b.pages, 0), coalesce(b.messages, 0),
       coalesce(b.size, 0), b.ticket, coalesce(b.deficit, 0), coalesce(b.floor, 0), coalesce(b.ahead, ''), coalesce(b.wake_at, 0),
       coalesce((
           SELECT true FROM {s}pause p
           WHERE p.ring = %(ring)s AND p.origin = ltrim(o.origin, E'\x01') AND (p.until IS NULL OR p.until > %(now)s)
       ), false) AS paused,
       coalesce((
           SELECT true FROM {s}claim c WHERE c.ring = %(ring)s AND c.origin IN (ltrim(o.origin, E'\x01'), E'\x01' || ltrim(o.origin, E'\x01')) AND NOT c.by_hand LIMIT 1
       ), false) AS in_flight,
       (SELECT t.settings FROM {s}standing t WHERE t.ring = %(ring)s AND t.origin = ltrim(o.origin, E'\x01')) AS standing
FROM unnest(%(origin)b::text[]) AS o(origin)
LEFT JOIN {s}book b ON b.ring = %(ring)s AND b.origin = o.origin
