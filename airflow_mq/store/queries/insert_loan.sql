-- Whose bytes a mail borrows.
INSERT INTO {s}loan (ring, origin, mail, lender_ring, lender_origin, lender_mail, start, let_go)
VALUES (:ring, :origin, :id, :lender_ring, :lender_origin, :lender_mail, :start, :let_go)
