-- Books by name; an origin that never had one gets an empty one. Takes no lock.
SELECT o.origin, coalesce(b.begin_page, 0), coalesce(b.end_page, 0), coalesce(b.pages, 0), coalesce(b.messages, 0),
       coalesce(b.size, 0), b.ticket, coalesce(b.deficit, 0), coalesce(b.floor, 0), coalesce(b.ahead, ''), coalesce(b.wake_at, 0),
{part in_the_way}
FROM unnest(%(origin)b::text[]) AS o(origin)
LEFT JOIN {s}book b ON b.ring = %(ring)s AND b.origin = o.origin
