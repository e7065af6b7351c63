-- A mail was let go of while one of its borrowers handed on what it borrows: the others have to know.
-- Under a lock of all its loans.
UPDATE {s}loan l SET let_go = true
WHERE l.lender_ring = %(lender_ring)s AND l.lender_origin = %(lender_origin)s AND l.lender_mail = %(lender_mail)s
