-- Ready books in the ring's order, those whose name holds a text; an empty one is held by all. Takes no lock.
SELECT b.origin, b.ticket FROM {s}book b
WHERE b.ring = %(ring)s AND b.ticket IS NOT NULL AND (%(text)s::text = '' OR strpos(b.origin, %(text)s) > 0)
ORDER BY b.ticket, b.origin
LIMIT %(limit)s
