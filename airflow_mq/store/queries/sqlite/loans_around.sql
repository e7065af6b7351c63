-- All loans of a mail, and of whoever lends to it. The transaction is the only one that writes.
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go
FROM {s}loan l
WHERE l.lender_ring = :ring AND l.lender_origin = :origin AND l.lender_mail = :id
UNION
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go
FROM {s}loan b
JOIN {s}loan l ON l.lender_ring = b.lender_ring AND l.lender_origin = b.lender_origin AND l.lender_mail = b.lender_mail
WHERE b.ring = :ring AND b.origin = :origin AND b.mail = :id
