-- The bytes that many mails borrow, from where they lie. Takes no lock.
SELECT l.origin, l.mail, substring(m.heap FROM l.start + 1 FOR b.size)
FROM unnest(%(origin)b::text[], %(id)b::bigint[]) AS w(origin, id)
JOIN {s}loan l ON l.ring = %(ring)s AND l.origin = w.origin AND l.mail = w.id
JOIN {s}mail b ON b.ring = l.ring AND b.origin = l.origin AND b.id = l.mail
JOIN {s}mail m ON m.ring = l.lender_ring AND m.origin = l.lender_origin AND m.id = l.lender_mail
