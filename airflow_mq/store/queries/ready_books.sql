-- Ready books in the ring's order, from a ticket on. Takes no lock.
SELECT o.origin, o.begin_page, o.end_page, o.pages, o.messages, o.size, o.ticket, o.deficit, o.floor, o.ahead, o.wake_at,
{part in_the_way}
FROM {s}book o
WHERE o.ring = :ring AND o.ticket > :after
ORDER BY o.ticket, o.origin
LIMIT :limit
