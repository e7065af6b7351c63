-- A mail was let go of while one of its borrowers handed on what it borrows: the others have to know.
UPDATE {s}loan SET let_go = 1
WHERE lender_ring = :lender_ring AND lender_origin = :lender_origin AND lender_mail = :lender_mail
