-- Remove mail at the edge of a page that went, unless a neighbour still holds some of it: a mail
-- is at most a page's worth, so it lies in three pages at most, and at an edge of each. Not between the
-- edges: what was committed late has a smaller id than what was cut before it. Under the ring's lock.
DELETE FROM {s}mail d
USING unnest(%(origin)b::text[], %(id)b::bigint[], %(page)b::bigint[]) AS w(origin, id, page)
WHERE d.ring = %(ring)s AND d.origin = w.origin AND d.id = w.id AND NOT EXISTS (
    SELECT FROM {s}page p
    WHERE p.ring = %(ring)s AND p.origin = w.origin AND p.page BETWEEN w.page - 2 AND w.page + 2
      AND w.id IN (p.first_mail, p.last_mail)
)
