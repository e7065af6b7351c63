-- All loans of these mails, and of whoever lends to them; locks them, in one order, because their rings may differ.
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go
FROM {s}loan l
WHERE (l.lender_ring, l.lender_origin, l.lender_mail) IN (
    SELECT %(ring)s::smallint, w.origin, w.id
    FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
    UNION
    SELECT b.lender_ring, b.lender_origin, b.lender_mail
    FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
    JOIN {s}loan b ON b.ring = %(ring)s AND b.origin = w.origin AND b.mail = w.id
)
ORDER BY l.ring, l.origin, l.mail
FOR UPDATE OF l
