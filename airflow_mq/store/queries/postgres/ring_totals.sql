-- The sums over all books. Takes no lock.
SELECT coalesce(sum(b.pages), 0), coalesce(sum(CASE WHEN b.ticket IS NOT NULL THEN b.end_page - b.begin_page ELSE 0 END), 0),
       coalesce(sum(b.messages), 0), coalesce(sum(b.size), 0), count(b.ticket)
FROM {s}book b WHERE b.ring = %(ring)s
