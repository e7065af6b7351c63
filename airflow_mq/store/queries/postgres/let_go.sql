-- No page needs these mails any more, but others borrow from them; unless a neighbouring page still does.
-- Under the ring's lock.
UPDATE {s}loan l SET let_go = true
FROM unnest(%(origin)b::text[], %(id)b::bigint[], %(page)b::bigint[]) AS w(origin, id, page)
WHERE l.lender_ring = %(ring)s AND l.lender_origin = w.origin AND l.lender_mail = w.id AND NOT EXISTS (
    SELECT FROM {s}page p
    WHERE p.ring = %(ring)s AND p.origin = w.origin AND p.page BETWEEN w.page - 2 AND w.page + 2
      AND w.id IN (p.first_mail, p.last_mail)
)
