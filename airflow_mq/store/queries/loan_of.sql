-- Whose bytes a mail borrows. Takes no lock.
SELECT l.lender_ring, l.lender_origin, l.lender_mail, l.start, l.let_go
FROM {s}loan l
WHERE l.ring = :ring AND l.origin = :origin AND l.mail = :id
