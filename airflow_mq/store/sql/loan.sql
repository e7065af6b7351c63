-- Loans: rows without bytes of their own that borrow those of another row.

-- name: insert_borrowed
-- Write a transferred message: a row without bytes of its own.
INSERT INTO {s}mail (id, size, ring, origin, attributes, heap)
VALUES (:id, :size, :ring, :origin, :attributes, x'')

-- name: insert_borrowed (postgres)
INSERT INTO {s}mail (id, size, ring, origin, attributes, heap)
VALUES (:id, :size, :ring, :origin, :attributes, '')

-- name: insert_loan
-- Record from which row a row borrows its bytes.
INSERT INTO {s}loan (ring, origin, mail, lender_ring, lender_origin, lender_mail, start, let_go)
VALUES (:ring, :origin, :id, :lender_ring, :lender_origin, :lender_mail, :start, :let_go)

-- name: loan_of
-- Return from which row a row borrows its bytes.
SELECT l.lender_ring, l.lender_origin, l.lender_mail, l.start, l.let_go
FROM {s}loan l
WHERE l.ring = :ring AND l.origin = :origin AND l.mail = :id

-- name: borrowed_heaps
-- Return the bytes that rows borrow.
SELECT l.origin, l.mail, substr(m.heap, l.start + 1, b.size)
FROM {s}loan l
JOIN {s}mail b ON b.ring = l.ring AND b.origin = l.origin AND b.id = l.mail
JOIN {s}mail m ON m.ring = l.lender_ring AND m.origin = l.lender_origin AND m.id = l.lender_mail
WHERE l.ring = :ring AND l.origin = :origin AND l.mail = :id

-- name: borrowed_heaps (postgres)
SELECT l.origin, l.mail, substring(m.heap FROM l.start + 1 FOR b.size)
FROM {each origin text[], id bigint[]}
JOIN {s}loan l ON l.ring = :ring AND l.origin = w.origin AND l.mail = w.id
JOIN {s}mail b ON b.ring = l.ring AND b.origin = l.origin AND b.id = l.mail
JOIN {s}mail m ON m.ring = l.lender_ring AND m.origin = l.lender_origin AND m.id = l.lender_mail

-- name: loans_around
-- Return all loans of these rows and of their lenders.
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go
FROM {s}loan l
WHERE l.lender_ring = :ring AND l.lender_origin = :origin AND l.lender_mail = :id
UNION
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go
FROM {s}loan b
JOIN {s}loan l ON l.lender_ring = b.lender_ring AND l.lender_origin = b.lender_origin AND l.lender_mail = b.lender_mail
WHERE b.ring = :ring AND b.origin = :origin AND b.mail = :id

-- name: loans_around (postgres)
-- Lock the loans in one order, because their rings may differ.
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go
FROM {s}loan l
WHERE (l.lender_ring, l.lender_origin, l.lender_mail) IN (
    SELECT :ring::smallint, w.origin, w.id
    FROM {each origin text[], id bigint[]}
    UNION
    SELECT b.lender_ring, b.lender_origin, b.lender_mail
    FROM {each origin text[], id bigint[]}
    JOIN {s}loan b ON b.ring = :ring AND b.origin = w.origin AND b.mail = w.id
)
ORDER BY l.ring, l.origin, l.mail
FOR UPDATE OF l

-- name: let_go
-- Mark the loans of rows that no page needs. Requires the ring lock.
UPDATE {s}loan SET let_go = 1
WHERE lender_ring = :ring AND lender_origin = :origin AND lender_mail = :id AND NOT EXISTS (
    SELECT 1 FROM {s}page p
    WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN :page - 2 AND :page + 2
      AND :id IN (p.first_mail, p.last_mail)
)

-- name: let_go (postgres)
UPDATE {s}loan l SET let_go = true
FROM {each origin text[], id bigint[], page bigint[]}
WHERE l.lender_ring = :ring AND l.lender_origin = w.origin AND l.lender_mail = w.id AND NOT EXISTS (
    SELECT FROM {s}page p
    WHERE p.ring = :ring AND p.origin = w.origin AND p.page BETWEEN w.page - 2 AND w.page + 2
      AND w.id IN (p.first_mail, p.last_mail)
)

-- name: let_go_for_all
-- Mark the loans of a row that was released while a borrower transferred it.
UPDATE {s}loan SET let_go = 1
WHERE lender_ring = :lender_ring AND lender_origin = :lender_origin AND lender_mail = :lender_mail

-- name: let_go_for_all (postgres)
-- Requires a lock of all its loans.
UPDATE {s}loan l SET let_go = true
WHERE l.lender_ring = :lender_ring AND l.lender_origin = :lender_origin AND l.lender_mail = :lender_mail

-- name: delete_loan
-- Delete the loans of deleted borrowers. Requires the ring lock.
DELETE FROM {s}loan WHERE ring = :ring AND origin = :origin AND mail = :id

-- name: delete_loan (postgres)
DELETE FROM {s}loan d
USING {each origin text[], id bigint[]}
WHERE d.ring = :ring AND d.origin = w.origin AND d.mail = w.id

-- name: all_loans
-- Return all loans of a ring, given or taken, with the sizes of both rows.
SELECT l.ring, l.origin, l.mail, l.lender_ring, l.lender_origin, l.lender_mail, l.let_go, l.start, b.size, m.size
FROM {s}loan l
LEFT JOIN {s}mail b ON b.ring = l.ring AND b.origin = l.origin AND b.id = l.mail
LEFT JOIN {s}mail m ON m.ring = l.lender_ring AND m.origin = l.lender_origin AND m.id = l.lender_mail
WHERE l.ring = :ring OR l.lender_ring = :ring
ORDER BY l.ring, l.origin, l.mail
