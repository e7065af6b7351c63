-- Whose bytes a mail borrows. Takes no lock that anybody else waits for.
INSERT INTO {s}loan (ring, origin, mail, lender_ring, lender_origin, lender_mail, start, let_go)
VALUES (%(ring)s, %(origin)s, %(id)s, %(lender_ring)s, %(lender_origin)s, %(lender_mail)s, %(start)s, %(let_go)s)
