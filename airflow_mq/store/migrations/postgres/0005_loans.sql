-- A message that was handed on to another queue lies where it lay: its mail there has no heap, and
-- a loan that says whose it is.

CREATE TABLE {s}loan (
    -- The mail that borrows.
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    mail bigint NOT NULL,
    -- The mail that has the bytes, and where they begin in its heap.
    lender_ring smallint NOT NULL,
    lender_origin text COLLATE "C" NOT NULL,
    lender_mail bigint NOT NULL,
    start integer NOT NULL,
    -- Whether no page of the lender needs the mail any more: it goes with its last loan.
    let_go boolean NOT NULL DEFAULT false,
    PRIMARY KEY (ring, origin, mail)
);
CREATE INDEX loan_by_lender ON {s}loan (lender_ring, lender_origin, lender_mail);
