-- The bytes that a mail borrows, from where they lie. Takes no lock.
SELECT l.origin, l.mail, substr(m.heap, l.start + 1, b.size)
FROM {s}loan l
JOIN {s}mail b ON b.ring = l.ring AND b.origin = l.origin AND b.id = l.mail
JOIN {s}mail m ON m.ring = l.lender_ring AND m.origin = l.lender_origin AND m.id = l.lender_mail
WHERE l.ring = :ring AND l.origin = :origin AND l.mail = :id
