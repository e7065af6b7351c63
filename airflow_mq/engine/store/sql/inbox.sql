-- Inbox rows: stored messages, waiting to be cut into pages, or delayed until they are due.
--
-- On PostgreSQL, a range of ids of one queue is compared as a row of origin and id: only the index by origin fits such a
-- comparison. Without statistics, or in a session that planned when there were hardly any rows, the planner may else read
-- that range of ids of all queues. Beside an open transaction statistics mislead it, too: tables have many old versions
-- and few live rows, so that all plans look equally cheap. An order that an index has, a LIMIT for each request, and
-- deletion by ctid leave it the index that fits.

-- name: insert_inbox_row
-- Write the rows of one call. The writing transaction is the only one.
INSERT INTO {s}inbox (id, size, items, ring, more, origin, lengths, attributes, heap)
VALUES (:id, :size, :items, :ring, :more, :origin, :lengths, :attributes, :heap)

-- name: insert_inbox_row (postgres)
-- Write one row, unless an id above `until` was drawn.
INSERT INTO {s}inbox (ring, size, items, more, refers, origin, lengths, attributes, heap)
SELECT :ring, :size, :items, :more, :refers, :origin, :lengths, :attributes, :heap
WHERE :until >= (SELECT {part last_drawn})

-- name: insert_inbox_rows (postgres)
-- Write several rows, unless an id above `until` was drawn. They get their ids in the order of the arrays.
INSERT INTO {s}inbox {
    rows ring, size int[], items int[], more bool[], refers bool[], origin text[], lengths bytea[], attributes bytea[],
    heap bytea[]
} WHERE :until >= (SELECT {part last_drawn})

-- name: insert_posted
-- Write single messages that processors sent or that return to their queue, under ids drawn before. Those that return keep
-- their time of sending. Requires the ring lock.
INSERT INTO {s}inbox (ring, id, origin, size, attributes, heap, sent_at)
VALUES (:ring, :id, :origin, :size, :attributes, :heap, coalesce(:sent_at, {clock}))

-- name: insert_posted (postgres)
INSERT INTO {s}inbox (ring, id, origin, size, attributes, heap, sent_at, refers)
SELECT :ring, w.id, w.origin, w.size, w.attributes, w.heap,
       coalesce(w.sent_at, {at now()}), w.attributes <> ''
FROM {each id bigint[], origin text[], size int[], attributes bytea[], heap bytea[], sent_at bigint[]}

-- name: insert_copy
-- Write a transferred message with the bytes of a part of another row.
INSERT INTO {s}inbox (id, size, ring, origin, attributes, heap)
SELECT :id, :size, :ring, :origin, :attributes, substr(m.heap, :start + 1, :size) FROM {s}inbox m
WHERE m.ring = :from_ring AND m.origin = :from_origin AND m.id = :from_id

-- name: insert_copy (postgres)
INSERT INTO {s}inbox (id, size, ring, origin, attributes, heap, refers)
SELECT :id, :size, :ring, :origin, :attributes, substring(m.heap FROM :start + 1 FOR :size), false FROM {s}inbox m
WHERE m.ring = :from_ring AND m.origin = :from_origin AND m.id = :from_id

-- part: rows_in_range (postgres)
-- The first rows of a request `w`, a range of ids of one queue.
FROM {s}inbox m
WHERE m.ring = :ring AND (m.origin, m.id) >= (w.origin, w.first) AND (m.origin, m.id) <= (w.origin, w.last)
ORDER BY m.origin, m.id
LIMIT w.rows

-- name: inbox_rows
-- Return the first rows of ranges of ids, with their bytes up to the size `inline`.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes,
       CASE WHEN m.size <= :inline THEN m.heap END, m.sent_at
FROM {s}inbox m
WHERE m.ring = :ring AND m.origin = :origin AND m.id BETWEEN :first AND :last
ORDER BY m.id
LIMIT :rows

-- name: inbox_rows (postgres)
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes,
       CASE WHEN m.size <= :inline THEN m.heap END, m.sent_at
FROM {each origin text[], first bigint[], last bigint[], rows bigint[]}
CROSS JOIN LATERAL (
    SELECT m.* {part rows_in_range}
) m

-- name: inbox_heads
-- Return the same without bytes, which a reader's role may not read, and with times where they are wanted.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, NULL, CASE WHEN :with_times THEN m.sent_at END
FROM {s}inbox m
WHERE m.ring = :ring AND m.origin = :origin AND m.id BETWEEN :first AND :last
ORDER BY m.id
LIMIT :rows

-- name: inbox_heads (postgres)
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, NULL,
       CASE WHEN :with_times THEN m.sent_at END
FROM {each origin text[], first bigint[], last bigint[], rows bigint[]}
CROSS JOIN LATERAL (
    SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes, m.sent_at {part rows_in_range}
) m

-- name: inbox_between
-- Return the ids of each queue's rows in a range, as one value per queue.
SELECT :origin, group_concat(m.id) FROM {s}inbox m
WHERE m.ring = :ring AND m.origin = :origin AND m.id >= :first AND m.id < :below

-- name: inbox_between (postgres)
-- A range has no more rows than ids. The limit keeps the planner from reading a bitmap and sorting its rows.
SELECT w.origin, found.ids
FROM {each origin text[], first bigint[], below bigint[]}
CROSS JOIN LATERAL (
    SELECT array_agg(s.id) AS ids
    FROM (
        SELECT m.id FROM {s}inbox m
        WHERE m.ring = :ring AND (m.origin, m.id) >= (w.origin, w.first) AND (m.origin, m.id) < (w.origin, w.below)
        ORDER BY m.origin, m.id
        LIMIT w.below - w.first
    ) s
) found

-- part: by_id
-- Before the ring of a row, the sign makes SQLite search by id: another index would bring all rows of the ring.
+

-- part: by_id (postgres)

-- name: uncut
-- Return rows of all queues in order of ids, without bytes; some may lie in pages already.
SELECT m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes
FROM {s}inbox m
WHERE {part by_id}m.ring = :ring AND m.id > :after
ORDER BY m.id
LIMIT :limit

-- name: delayed_heaps
-- Return delayed rows with their bytes. Only one that waits aside has a time of sending.
SELECT d.origin, d.id, d.size, d.items, d.more, d.lengths, d.attributes, d.heap, d.sent_at
FROM {each id bigint[]} JOIN {s}delayed d ON d.id = w.id

-- name: news_by_id
-- Return queues that are not ready and have rows in a range of ids, each after its first id.
SELECT min(m.id), m.origin
FROM {s}inbox m
LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
WHERE {part by_id}m.ring = :ring AND m.id >= :start AND m.id < :below
  AND b.ticket IS NULL AND m.id >= coalesce(b.floor, 0)
GROUP BY m.origin
ORDER BY 1

-- name: news_by_id (postgres)
-- Look up the book of a queue once, not for each of its rows.
SELECT n.first, n.origin
FROM (
    SELECT q.origin, (SELECT min(i) FROM unnest(q.ids) i WHERE i >= coalesce(b.floor, 0)) AS first
    FROM (
        SELECT s.origin, array_agg(s.id) AS ids
        FROM (
            SELECT m.origin, m.id FROM {s}inbox m
            WHERE m.ring = :ring AND m.id >= :start AND m.id < :below
            ORDER BY m.id
        ) s
        GROUP BY s.origin
    ) q
    LEFT JOIN LATERAL (
        SELECT k.ticket, k.floor FROM {s}book k WHERE k.ring = :ring AND k.origin = q.origin ORDER BY k.age LIMIT 1
    ) b ON true
    WHERE b.ticket IS NULL
) n
WHERE n.first IS NOT NULL
ORDER BY 1

-- part: unready_of_walk
-- The queues of `walk` that are not ready, each after its first id that lies in no page.
SELECT (SELECT min(m.id) FROM {s}inbox m
        WHERE m.ring = :ring AND m.origin = w.origin AND m.id >= coalesce(
            (SELECT b.floor FROM {s}book b WHERE b.ring = :ring AND b.origin = w.origin LIMIT 1), 0)) AS first, w.origin
FROM walk w
WHERE w.origin IS NOT NULL
  AND (SELECT b.ticket FROM {s}book b WHERE b.ring = :ring AND b.origin = w.origin LIMIT 1) IS NULL

-- name: news_by_origin
-- Return queues between two names that are not ready and have rows, each after its first id.
-- The recursion steps from queue to queue along the index instead of reading all rows.
WITH RECURSIVE walk(origin) AS (
    SELECT min(m.origin) FROM {s}inbox m WHERE m.ring = :ring AND m.origin > :after AND m.origin < :below
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}inbox m WHERE m.ring = :ring AND m.origin > walk.origin AND m.origin < :below)
    FROM walk
    WHERE walk.origin IS NOT NULL
)
{part unready_of_walk}

-- name: news_by_origin (postgres)
-- The recursion steps through many ranges of names at once.
WITH RECURSIVE walk(origin, below) AS (
    SELECT (SELECT min(m.origin) FROM {s}inbox m
            WHERE m.ring = :ring AND m.origin > w.after AND m.origin < w.below), w.below
    FROM {each after text[], below text[]}
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}inbox m
            WHERE m.ring = :ring AND m.origin > walk.origin AND m.origin < walk.below), walk.below
    FROM walk
    WHERE walk.origin IS NOT NULL
)
{part unready_of_walk}

-- part: first_row
-- What a report reads of the first row `m` of a queue with the book `b`, or without one, and whether it is the only row.
coalesce(b.wake_at, 0) > :now, coalesce(b.messages, 0), coalesce(length(b.ahead), 0) > 0,
       coalesce(b.messages, 0) = 0 AND (
           SELECT max(l.id) FROM {s}inbox l WHERE l.ring = :ring AND l.origin = m.origin
       ) = m.id, m.id, m.id, m.origin, m.id, m.size, m.items, m.more, m.lengths, m.attributes

-- name: first_inbox_rows
-- Return the first row of each queue that is not ready and has rows, by name, and whether it is the queue's only row.
-- The recursion steps from queue to queue along the index, until there are enough.
WITH RECURSIVE walk(origin) AS (
    SELECT min(m.origin) FROM {s}inbox m WHERE m.ring = :ring
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}inbox m WHERE m.ring = :ring AND m.origin > walk.origin)
    FROM walk
    WHERE walk.origin IS NOT NULL
)
SELECT {part first_row}
FROM walk w
LEFT JOIN {s}book b ON b.ring = :ring AND b.origin = w.origin
CROSS JOIN {s}inbox m
WHERE b.ticket IS NULL AND m.ring = :ring AND m.origin = w.origin AND m.id = (
    SELECT min(f.id) FROM {s}inbox f WHERE f.ring = :ring AND f.origin = w.origin AND f.id >= coalesce(b.floor, 0)
)
LIMIT :limit

-- name: first_inbox_rows (postgres)
-- A step reads as far as there were queues in the step before: a lookup of the next queue would read that page of the
-- index for each of its queues. Lookups by LIMIT 1 keep the planner from hashing all queues or rows.
WITH RECURSIVE walk(origins) AS (
    SELECT ARRAY['' COLLATE "C"]
    UNION ALL
    SELECT n.origins
    FROM walk
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT s.origin ORDER BY s.origin) AS origins
        FROM (
            SELECT m.origin FROM {s}inbox m
            WHERE m.ring = :ring AND m.origin > walk.origins[cardinality(walk.origins)]
            ORDER BY m.origin, m.id
            LIMIT least(64 * cardinality(walk.origins), 4096)
        ) s
    ) n
    WHERE n.origins IS NOT NULL
)
SELECT {part first_row}
FROM walk
CROSS JOIN LATERAL unnest(walk.origins) w(origin)
LEFT JOIN LATERAL (SELECT * FROM {s}book k WHERE k.ring = :ring AND k.origin = w.origin LIMIT 1) b ON true
CROSS JOIN LATERAL (
    SELECT l.origin, l.id, l.size, l.items, l.more, l.lengths, l.attributes FROM {s}inbox l
    WHERE l.ring = :ring AND l.origin = w.origin AND l.id >= coalesce(b.floor, 0) ORDER BY l.origin, l.id LIMIT 1
) m
WHERE b.ticket IS NULL
LIMIT :limit

-- name: pulse
-- Return the newest row's id, the time of the latest set-aside message, and when the first delayed row is due.
SELECT coalesce((SELECT m.id FROM {s}inbox m WHERE {part by_id}m.ring = :ring AND m.id > 0 ORDER BY m.id DESC LIMIT 1), 0),
       coalesce((SELECT max(a.at) FROM {s}set_aside a WHERE a.ring = :ring), 0),
       (SELECT min(d.due) FROM {s}delayed d WHERE d.ring = :ring)

-- name: blob_rows
-- Return rows that refer to external payloads, and whether they are delayed.
SELECT r.origin, r.id, r.attributes, r.is_delayed FROM (
    SELECT m.origin, m.id, m.attributes, false AS is_delayed FROM {s}inbox m WHERE m.ring = :ring
    UNION ALL SELECT d.origin, d.id, d.attributes, true FROM {s}delayed d WHERE d.ring = :ring
) r
WHERE length(r.attributes) > 0 AND instr(r.attributes, CAST('"blobs":{' AS BLOB))

-- name: blob_rows (postgres)
SELECT r.origin, r.id, r.attributes, r.is_delayed FROM (
    SELECT m.origin, m.id, m.attributes, false AS is_delayed FROM {s}inbox m WHERE m.ring = :ring
    UNION ALL SELECT d.origin, d.id, d.attributes, true FROM {s}delayed d WHERE d.ring = :ring
) r
WHERE length(r.attributes) > 0 AND position('"blobs":{'::bytea IN r.attributes) > 0

-- name: delete_range
-- Delete all rows of a range of ids, if it contains as many as the caller knows, and so no others. Requires the ring
-- lock.
DELETE FROM {s}inbox
WHERE ring = :ring AND origin = :origin AND id BETWEEN :first AND :last AND :rows = (
    SELECT count(*) FROM {s}inbox m WHERE m.ring = :ring AND m.origin = :origin AND m.id BETWEEN :first AND :last
)

-- name: delete_range (postgres)
-- One row too many shows that the range contains others. The limit has the same reason as in `inbox_between`.
DELETE FROM {s}inbox WHERE ctid = ANY(ARRAY(
    SELECT unnest(f.rows)
    FROM {each origin text[], first bigint[], last bigint[], rows int[]}
    CROSS JOIN LATERAL (
        SELECT array_agg(s.ctid) AS rows
        FROM (SELECT m.ctid {part rows_in_range} + 1) s
    ) f
    WHERE cardinality(f.rows) = w.rows
))

-- name: delete_inbox_rows
-- Delete rows of deleted pages: those without a page lay inside of one; others lay at the edge of theirs, and stay if a
-- neighbouring page holds a part of them. A row is at most a page's worth, so it lies in three pages at most, and at an
-- edge of each. The test looks at edges only: a row that was committed late has a smaller id than rows that were cut
-- before it. Requires the ring lock.
DELETE FROM {s}inbox
WHERE ring = :ring AND origin = :origin AND id = :id AND NOT EXISTS (
    SELECT 1 FROM {s}page p
    WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN :page - 2 AND :page + 2
      AND :id IN (p.first_row, p.last_row)
)

-- name: delete_inbox_rows (postgres)
DELETE FROM {s}inbox WHERE ctid = ANY(ARRAY(
    SELECT f.ctid
    FROM {each origin text[], id bigint[], page bigint[]}
    CROSS JOIN LATERAL (
        SELECT m.ctid FROM {s}inbox m WHERE m.ring = :ring AND m.origin = w.origin AND m.id = w.id LIMIT 1
    ) f
    WHERE (
        SELECT true FROM {s}page p
        WHERE p.ring = :ring AND p.origin = w.origin AND p.page BETWEEN w.page - 2 AND w.page + 2
          AND w.id IN (p.first_row, p.last_row)
        LIMIT 1
    ) IS NULL
))

-- name: insert_delayed
-- Write rows that join their queue when they are due, under ids drawn before. Messages that wait aside keep their time of
-- sending.
INSERT INTO {s}delayed {
    rows ring, id bigint[], due bigint[], origin text[], size int[], items int[], more bool[], lengths bytea[],
    attributes bytea[], heap bytea[], sent_at bigint[]
}

-- name: end_waits
-- Let the messages of a queue that wait aside join it now; messages that their sender delayed have no time of sending.
UPDATE {s}delayed SET due = :now WHERE ring = :ring AND origin = :origin AND due > :now AND sent_at IS NOT NULL

-- name: put_off_from
-- Return when a message is due that waits aside, by the part of its attributes that names its former place.
SELECT d.due FROM {s}delayed d WHERE d.ring = :ring AND d.origin = :origin AND instr(d.attributes, :mark) LIMIT 1

-- name: put_off_from (postgres)
SELECT d.due FROM {s}delayed d
WHERE d.ring = :ring AND d.origin = :origin AND position(CAST(:mark AS bytea) IN d.attributes) > 0 LIMIT 1

-- name: delayed
-- Return delayed rows after a due time and id, and due by another time, without bytes.
SELECT d.due, d.origin, d.id, d.size, d.items, d.more, d.lengths, d.attributes FROM {s}delayed d
WHERE d.ring = :ring AND (d.due, d.id) > (:due, :after) AND d.due <= :until
ORDER BY d.due, d.id LIMIT :limit

-- name: due_rows
-- Return due rows of these queues, without bytes.
SELECT d.origin, d.id, d.size, d.items, d.more, d.lengths, d.attributes
FROM {each origin text[]} JOIN {s}delayed d ON d.ring = :ring AND d.origin = w.origin
WHERE d.due <= :now ORDER BY d.due, d.id

-- name: promote_due
-- Move due rows into their queues as if they were sent now; `delete_due` completes the move. Messages that waited aside
-- keep their time of sending.
INSERT INTO {s}inbox (id, sent_at, size, items, ring, more, origin, lengths, attributes, heap)
SELECT :id, coalesce(d.sent_at, {clock}), d.size, d.items, d.ring, d.more, d.origin, d.lengths, d.attributes, d.heap
FROM {s}delayed d
WHERE d.id = :was

-- name: promote_due (postgres)
-- Move the first due rows into their queues in the same way: at most `most` rows, and those before which there are less
-- than `most_size` bytes. Requires the ring lock.
WITH first AS (
    SELECT f.id, sum(f.size) OVER (ORDER BY f.due, f.id) - f.size AS earlier FROM (
        SELECT due, id, size FROM {s}delayed WHERE ring = :ring AND due <= :now ORDER BY due, id LIMIT :most
    ) f
), due AS (
    DELETE FROM {s}delayed d USING first f WHERE d.id = f.id AND f.earlier < :most_size RETURNING d.*
)
INSERT INTO {s}inbox (sent_at, size, items, ring, more, origin, lengths, attributes, heap, refers)
SELECT coalesce(sent_at, {at now()}), size, items, ring, more, origin, lengths, attributes, heap, attributes <> ''
FROM due ORDER BY due, id

-- name: delete_due (sqlite)
-- Delete the delayed rows that joined their queues.
DELETE FROM {s}delayed WHERE id = :id

-- name: delayed_of
-- Return the number of delayed messages in a range of queues, and when the first of them is due.
SELECT CAST(coalesce(sum(d.items), 0) AS bigint), min(d.due) FROM {s}delayed d
WHERE d.ring = :ring AND d.origin >= :first AND d.origin <= :last AND d.due > :now

