-- All loans of a ring, given or taken; whether both mails are there, and the bytes among them. Takes no lock.
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go, l.start, b.size, m.size
FROM {s}loan l
LEFT JOIN {s}mail b ON b.ring = l.ring AND b.origin = l.origin AND b.id = l.mail
LEFT JOIN {s}mail m ON m.ring = l.lender_ring AND m.origin = l.lender_origin AND m.id = l.lender_mail
WHERE l.ring = :ring OR l.lender_ring = :ring
ORDER BY l.ring, l.origin, l.mail
