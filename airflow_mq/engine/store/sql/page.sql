-- Pages: messages of one queue, cut from inbox rows, with their progress.

-- part: page
-- The columns of a page `p`.
p.origin, p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size, p.slices, p.lengths, p.marks, p.notes

-- name: pages
-- Return the first stored pages of each queue within bounds.
SELECT {part page}
FROM {s}page p
WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN :first AND :last
ORDER BY p.page
LIMIT :limit

-- name: pages (postgres)
SELECT {part page}
FROM {each origin text[], first bigint[], last bigint[]}
CROSS JOIN LATERAL (
    SELECT * FROM {s}page p
    WHERE p.ring = :ring AND p.origin = w.origin AND p.page BETWEEN w.first AND w.last
    ORDER BY p.page
    LIMIT :limit
) p

-- name: save_page
-- Write pages. Requires the ring lock.
INSERT INTO {s}page {
    rows ring, origin text[], page bigint[], items int[], used int[], first_index int[], remaining int[],
    remaining_size bigint[], set_aside int[], first_row bigint[], last_row bigint[], slices bytea[], lengths bytea[],
    marks bytea[], notes bytea[]
}
ON CONFLICT (ring, origin, page) DO UPDATE SET {
    set excluded items, used, first_index, remaining, remaining_size, set_aside, first_row, last_row, slices, lengths,
    marks, notes
}

-- name: delete_page
-- Delete pages. Requires the ring lock.
DELETE FROM {s}page
WHERE ring = :ring AND origin = :origin AND page = :page

-- name: delete_page (postgres)
DELETE FROM {s}page WHERE ctid = ANY(ARRAY(
    SELECT f.ctid
    FROM {each origin text[], page bigint[]}
    CROSS JOIN LATERAL (
        SELECT p.ctid FROM {s}page p WHERE p.ring = :ring AND p.origin = w.origin AND p.page = w.page LIMIT 1
    ) f
))

-- part: first_page
-- The columns of the first waiting page `p` of a ready book `b`, and whether the book has no message elsewhere.
SELECT b.wake_at > :now, b.messages, false, p.page = b.end_page - 1 AND length(b.ahead) = 0 AND (
           SELECT true FROM {s}inbox m WHERE m.ring = b.ring AND m.origin = b.origin AND m.id >= b.floor LIMIT 1
       ) IS NULL, p.first_row, p.last_row, {part page}

-- part: first_waiting
-- The first page `q` of a book `b` with waiting messages.
WHERE q.ring = b.ring AND q.origin = b.origin AND q.page >= b.begin_page AND q.page < b.end_page
  AND q.first_index < q.items
ORDER BY q.page LIMIT 1

-- name: first_pages
-- Return the first waiting page of each ready book with a smaller ticket, in the ring's order.
{part first_page}
FROM {s}book b
JOIN {s}page p ON p.rowid = (
    SELECT q.rowid FROM {s}page q {part first_waiting}
)
WHERE b.ring = :ring AND b.ticket < :below
ORDER BY b.ticket
LIMIT :limit

-- name: first_pages (postgres)
{part first_page}
FROM {s}book b
CROSS JOIN LATERAL (
    SELECT * FROM {s}page q {part first_waiting}
) p
WHERE b.ring = :ring AND b.ticket < :below
ORDER BY b.ticket
LIMIT :limit

-- name: pages_with_set_aside
-- Return pages with set-aside messages in a range of queues, or only with messages that a sweep set aside: those without a
-- row in `set_aside`.
SELECT {part page}
FROM {s}page p
WHERE p.ring = :ring AND p.set_aside > 0 AND (p.origin, p.page) >= (:origin, :page)
  AND p.origin <= :last
  AND (NOT :swept OR p.set_aside > (
      SELECT count(*) FROM {s}set_aside a WHERE a.ring = p.ring AND a.origin = p.origin AND a.page = p.page
  ))
ORDER BY p.origin, p.page
LIMIT :limit

-- name: sweep_pages
-- Set aside all remaining messages of swept pages. Requires the ring lock.
UPDATE {s}page SET set_aside = remaining WHERE ring = :ring AND origin = :origin AND page >= :first
