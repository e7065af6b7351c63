-- A message that was handed on to another queue lies where it lay: its mail there has no heap, and
-- a loan that says whose it is.

CREATE TABLE {s}loan (
    -- The mail that borrows.
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    mail INTEGER NOT NULL,
    -- The mail that has the bytes, and where they begin in its heap.
    lender_ring INTEGER NOT NULL,
    lender_origin TEXT NOT NULL,
    lender_mail INTEGER NOT NULL,
    start INTEGER NOT NULL,
    -- Whether no page of the lender needs the mail any more: it goes with its last loan.
    let_go INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin, mail)
) STRICT;
CREATE INDEX {s}loan_by_lender ON {s}loan (lender_ring, lender_origin, lender_mail);
