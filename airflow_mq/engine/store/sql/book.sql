-- Books: the queue of each origin, its place in the ring, and depths over books, pages and inbox rows.
--
-- On PostgreSQL, a book has an age, which falls with each write. A lookup of one book has LIMIT 1: it ends at the
-- newest version of its row, however many older ones the server keeps for an open transaction.

-- part: is_paused
-- Whether a book `o` is paused. Each CASE stops early: features that a ring does not use cost no lookup.
CASE WHEN EXISTS (SELECT 1 FROM {s}pause WHERE ring = :ring) THEN EXISTS (
    SELECT 1 FROM {s}pause p
    WHERE p.ring = :ring AND p.origin = ltrim(o.origin, char(1)) AND (p.until IS NULL OR p.until > :now)
) ELSE 0 END

-- part: is_paused (postgres)
-- A scalar subquery, not EXISTS: the planner may answer EXISTS by hashing everything that is in flight.
coalesce((
    SELECT true FROM {s}pause p
    WHERE p.ring = :ring AND p.origin = ltrim(o.origin, E'\x01') AND (p.until IS NULL OR p.until > :now)
), false)

-- part: is_in_flight
-- Whether a book `o` has messages in flight.
CASE
    WHEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = o.origin AND NOT c.by_hand) THEN 1
    WHEN o.origin < char(2)
    THEN EXISTS (
        SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = substr(o.origin, 2) AND NOT c.by_hand
    )
    WHEN EXISTS (SELECT 1 FROM {s}claim WHERE ring = :ring AND origin < char(2))
    THEN EXISTS (
        SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = char(1) || o.origin AND NOT c.by_hand
    )
    ELSE 0
END

-- part: is_in_flight (postgres)
-- A ring without a live block, and without a recorded end, has nothing in flight, which two lookups find out for all
-- books.
CASE
    WHEN coalesce(
        (SELECT true FROM {s}block v
         WHERE v.ring = :ring AND v.state = 0 AND v.id >= {part oldest_live} ORDER BY v.id LIMIT 1),
        (SELECT true FROM {s}ending e WHERE e.ring = :ring ORDER BY e.block LIMIT 1)
    ) THEN coalesce((
        SELECT true
        FROM (VALUES (ltrim(o.origin, E'\x01')), (E'\x01' || ltrim(o.origin, E'\x01'))) AS n(origin)
        CROSS JOIN LATERAL (
            SELECT FROM {s}claim c
            WHERE c.ring = :ring AND NOT c.by_hand AND (c.origin, c.block) >= (n.origin, {part oldest_live})
              AND (c.origin, c.block) <= (n.origin, 9223372036854775807)
            ORDER BY c.origin, c.block
            LIMIT 1
        ) c
        LIMIT 1
    ), false)
    ELSE false
END

-- part: is_exhausted
-- Whether the bucket of the origin of a book `o` keeps it waiting.
CASE WHEN EXISTS (SELECT 1 FROM {s}bucket WHERE ring = :ring) THEN EXISTS (
    SELECT 1 FROM {s}bucket k WHERE k.ring = :ring AND k.path = ltrim(o.origin, char(1)) AND k.wake_at > :now
) ELSE 0 END

-- part: is_exhausted (postgres)
coalesce((
    SELECT true FROM {s}bucket k
    WHERE k.ring = :ring AND k.path = ltrim(o.origin, E'\x01') AND k.wake_at > :now
), false)

-- part: own_settings
-- The settings of the origin of a book `o`.
CASE WHEN EXISTS (SELECT 1 FROM {s}setting WHERE ring = :ring) THEN (
    SELECT t.settings FROM {s}setting t WHERE t.ring = :ring AND t.origin = ltrim(o.origin, char(1))
) END

-- part: own_settings (postgres)
(SELECT t.settings FROM {s}setting t WHERE t.ring = :ring AND t.origin = ltrim(o.origin, E'\x01'))

-- part: skipping
-- The columns of a book `o` for which it may be skipped, and the settings of its origin.
{part is_paused} AS paused,
{part is_in_flight} AS in_flight,
{part own_settings} AS settings

-- name: ready_books
-- Return ready books of a priority between two tickets, in ring order.
SELECT o.origin, o.begin_page, o.end_page, o.pages, o.messages, o.size, o.ticket, o.deficit, o.floor, o.ahead,
       o.wake_at,
{part skipping}
FROM {s}book o
WHERE o.ring = :ring AND o.high = :high AND o.ticket > :after AND o.ticket < :below
ORDER BY o.ticket, o.origin
LIMIT :limit

-- name: woken_books
-- Return books of a priority that no longer wait for their budgets: the time has come, or the settings changed.
SELECT x.origin FROM (
    SELECT b.origin, b.ticket FROM {s}book b
    WHERE b.ring = :ring AND b.high = :high AND b.ticket >= :asleep AND b.ticket <= :until
    ORDER BY b.ticket, b.origin LIMIT :limit
) x
UNION ALL
SELECT b.origin FROM {s}bucket k
JOIN {s}book b ON b.ring = k.ring AND b.origin = :mark || k.path
WHERE k.ring = :ring AND k.wake_at < 0 AND b.ticket > :until

-- part: is_ordered
-- Whether messages in flight keep a book `o` from being serviced.
:any_order OR coalesce(json_extract({part own_settings}, '$.ordered'), :ordered)

-- part: is_ordered (postgres)
:any_order OR coalesce((({part own_settings}) ->> 'ordered')::boolean, :ordered)

-- part: stretch
-- The next `limit` ready regular books after a ticket, or fewer up to the last of `most` that can be serviced. The reasons for
-- which the others are skipped are those of `BookRow.skip_reason`; a test compares the two.
WITH judged AS MATERIALIZED (
    SELECT o.origin, o.ticket, CASE
        WHEN {part is_paused} THEN 'paused'
        WHEN {part is_in_flight} AND ({part is_ordered}) THEN 'in flight'
        WHEN o.wake_at > :now THEN 'backoff'
        WHEN {part is_exhausted} THEN 'budget'
        ELSE ''
    END AS reason
    FROM (
        SELECT b.origin, b.ticket, b.wake_at FROM {s}book b
        WHERE b.ring = :ring AND b.high = false AND b.ticket > :after AND b.ticket < :below
        ORDER BY b.ticket, b.origin LIMIT :limit
    ) o
), stretch AS (
    SELECT j.* FROM judged j WHERE j.ticket <= coalesce(
        (SELECT k.ticket FROM judged k WHERE k.reason = '' ORDER BY k.ticket LIMIT 1 OFFSET :most - 1), j.ticket)
)

-- name: serviceable_books
-- Return names and tickets of the next ready books: a row for each reason, with the number of its books, their last
-- ticket and names. Tickets are returned of books that are not skipped.
{part stretch}
SELECT q.reason, count(*), max(q.ticket), group_concat(q.origin, char(10)),
       group_concat(CASE WHEN q.reason = '' THEN q.ticket END, char(10))
FROM stretch q
GROUP BY q.reason

-- name: serviceable_books (postgres)
{part stretch}
SELECT q.reason, count(*), max(q.ticket), string_agg(q.origin, E'\n'),
       string_agg(CASE WHEN q.reason = '' THEN q.ticket::text END, E'\n')
FROM stretch q
GROUP BY q.reason

-- name: turns_before
-- Return names and tickets of the ready books of a priority before a ticket, the last ones first.
SELECT b.ticket, b.origin FROM {s}book b
WHERE b.ring = :ring AND b.high = :high AND b.ticket < :before ORDER BY b.ticket DESC LIMIT :limit

-- name: books
-- Return books by name; a queue that never had a book gets an empty one.
SELECT o.origin, coalesce(b.begin_page, 0), coalesce(b.end_page, 0), coalesce(b.pages, 0), coalesce(b.messages, 0),
       coalesce(b.size, 0), b.ticket, coalesce(b.deficit, 0), coalesce(b.floor, 0), coalesce(b.ahead, x''),
       coalesce(b.wake_at, 0),
{part skipping}
FROM (SELECT :origin AS origin) o
LEFT JOIN {s}book b ON b.ring = :ring AND b.origin = o.origin

-- name: books (postgres)
SELECT o.origin, coalesce(b.begin_page, 0), coalesce(b.end_page, 0), coalesce(b.pages, 0), coalesce(b.messages, 0),
       coalesce(b.size, 0), b.ticket, coalesce(b.deficit, 0), coalesce(b.floor, 0), coalesce(b.ahead, ''),
       coalesce(b.wake_at, 0),
{part skipping}
FROM unnest((SELECT :origin::text[])) AS o(origin)
LEFT JOIN LATERAL (
    SELECT * FROM {s}book k WHERE k.ring = :ring AND k.origin = o.origin ORDER BY k.age LIMIT 1
) b ON true

-- name: save_book
-- Write books. Requires the ring lock.
INSERT INTO {s}book {
    rows ring, origin text[], begin_page bigint[], end_page bigint[], pages bigint[], messages bigint[],
    size bigint[], ticket bigint[], deficit bigint[], floor bigint[], ahead bytea[], wake_at bigint[]
}
ON CONFLICT (ring, origin) DO UPDATE SET {
    set excluded begin_page, end_page, pages, messages, size, ticket, deficit, floor, ahead, wake_at
}

-- name: save_book (postgres)
WITH wanted AS (
    SELECT w.*, (
        SELECT b.ctid FROM {s}book b WHERE b.ring = :ring AND b.origin = w.origin ORDER BY b.age LIMIT 1
    ) AS row
    FROM {each origin text[], begin_page bigint[], end_page bigint[], pages bigint[], messages bigint[],
          size bigint[], ticket bigint[], deficit bigint[], floor bigint[], ahead bytea[], wake_at bigint[]}
), changed AS (
    UPDATE {s}book b SET age = b.age - 1, {
        set w begin_page, end_page, pages, messages, size, ticket, deficit, floor, ahead, wake_at
    }
    FROM wanted w
    WHERE b.ctid = w.row
)
INSERT INTO {s}book (
    ring, origin, begin_page, end_page, pages, messages, size, ticket, deficit, floor, ahead, wake_at
)
SELECT :ring, w.origin, w.begin_page, w.end_page, w.pages, w.messages, w.size, w.ticket, w.deficit, w.floor, w.ahead,
       w.wake_at
FROM wanted w
WHERE w.row IS NULL

-- name: second_rows
-- Return the books of which there is more than one row, and how many, for the check; the name is null for the state of
-- the ring.
SELECT b.origin, count(*) FROM {s}book b WHERE b.ring = :ring GROUP BY b.origin HAVING count(*) > 1
UNION ALL
SELECT NULL, count(*) FROM {s}ring_state s WHERE s.ring = :ring HAVING count(*) > 1

-- name: line
-- Return ticket, name and deficit of ready books with smaller tickets, high ones first, in ring order. Regular ones are
-- left out whose names begin with a path of these.
SELECT b.ticket, b.origin, b.deficit FROM {s}book b
WHERE b.ring = :ring AND b.ticket < :below
  AND (:without = '[]'
       OR substr(b.origin, 1, instr(b.origin || '/', '/') - 1) NOT IN (SELECT value FROM json_each(:without)))
ORDER BY b.high DESC, b.ticket, b.origin

-- name: line (postgres)
SELECT b.ticket, b.origin, b.deficit FROM {s}book b
WHERE b.ring = :ring AND b.ticket < :below
  AND (:without::text = '[]' OR split_part(b.origin, '/', 1) NOT IN (SELECT json_array_elements_text(:without::json)))
ORDER BY b.high DESC, b.ticket, b.origin

-- name: guaranteed
-- Return origins with a guaranteed least: first those with a ready book, in ring order, then the others, which may
-- have inbox rows.
SELECT g.origin FROM (
    SELECT t.origin,
           (SELECT b.ticket FROM {s}book b WHERE b.ring = t.ring AND b.origin = t.origin LIMIT 1) AS ticket
    FROM {s}setting t
    WHERE t.ring = :ring AND t.guaranteed
) g
ORDER BY g.ticket IS NULL, g.ticket, g.origin

-- name: forget_deficits
-- Reset the deficits of all books: paths were switched on or off. Requires the ring lock.
UPDATE {s}book SET deficit = 0 WHERE ring = :ring AND deficit <> 0

-- name: names
-- Return names of queues in a range, after a name: of those with inbox rows or, if wanted, delayed rows, and of books,
-- which have pages or a ticket unless all are wanted. The recursions step from queue to queue along their index.
WITH RECURSIVE walk(origin, place) AS (
    SELECT min(m.origin), 1 FROM {s}inbox m WHERE m.ring = :ring AND m.origin > :after AND m.origin >= :first
    UNION ALL
    SELECT (SELECT min(m.origin) FROM {s}inbox m WHERE m.ring = :ring AND m.origin > walk.origin), walk.place + 1
    FROM walk
    WHERE walk.origin IS NOT NULL AND walk.origin < :below AND walk.place < :limit
), late(origin, place) AS (
    SELECT min(d.origin), 1 FROM {s}delayed d
    WHERE :delayed AND d.ring = :ring AND d.origin > :after AND d.origin >= :first
    UNION ALL
    SELECT (SELECT min(d.origin) FROM {s}delayed d WHERE d.ring = :ring AND d.origin > late.origin), late.place + 1
    FROM late
    WHERE late.origin IS NOT NULL AND late.origin < :below AND late.place < :limit
)
SELECT x.origin FROM (
    SELECT b.origin FROM {s}book b
    WHERE b.ring = :ring AND b.origin > :after AND b.origin >= :first AND b.origin < :below
      AND (b.pages > 0 OR b.ticket IS NOT NULL)
    ORDER BY b.origin LIMIT :limit
) x
UNION
SELECT y.origin FROM (
    SELECT b.origin FROM {s}book b
    WHERE :all AND b.ring = :ring AND b.origin > :after AND b.origin >= :first AND b.origin < :below
    ORDER BY b.origin LIMIT :limit
) y
UNION
SELECT late.origin FROM late WHERE late.origin IS NOT NULL AND late.origin < :below
UNION
SELECT walk.origin FROM walk WHERE walk.origin IS NOT NULL AND walk.origin < :below
ORDER BY 1
LIMIT :limit

-- name: known_origins
-- Return which of these queues have a book, an inbox row or a delayed row.
SELECT w.origin FROM {each origin text[]}
WHERE EXISTS (
          SELECT 1 FROM {s}book b WHERE b.ring = :ring AND b.origin = w.origin AND (b.pages > 0 OR b.ticket IS NOT NULL)
      )
   OR EXISTS (SELECT 1 FROM {s}inbox m WHERE m.ring = :ring AND m.origin = w.origin)
   OR EXISTS (SELECT 1 FROM {s}delayed d WHERE d.ring = :ring AND d.origin = w.origin)

-- part: behind
-- Inbox rows of a queue behind its last sum.
{s}inbox m WHERE m.ring = :ring AND m.origin = :origin AND m.id >= (SELECT l.below FROM last l)

-- name: held (sqlite)
-- Return the bytes that each queue stores; how many rows from the floor on were read; and the ids of those that lie in
-- pages, and so count twice. Between two sums beyond the rows in pages, no row is read.
WITH b AS (
    SELECT coalesce(max(k.size), 0) AS size, coalesce(max(k.floor), 0) AS floor, coalesce(max(k.ahead), x'') AS ahead
    FROM {s}book k WHERE k.ring = :ring AND k.origin = :origin
), first AS (
    SELECT s.below, s.total FROM b, {s}inbox_sum s
    WHERE s.ring = :ring AND s.origin = :origin AND s.below >= b.floor AND b.ahead = x'' ORDER BY s.below LIMIT 1
), last AS (
    SELECT s.below, s.total FROM {s}inbox_sum s
    WHERE s.ring = :ring AND s.origin = :origin AND EXISTS (SELECT 1 FROM first) ORDER BY s.below DESC LIMIT 1
), r AS (
    SELECT m.size, m.attributes, m.id FROM {s}inbox m
    WHERE m.ring = :ring AND m.origin = :origin AND m.id >= (SELECT b.floor FROM b)
      AND m.id < coalesce((SELECT f.below FROM first f), 9223372036854775807)
    UNION ALL
    SELECT m.size, m.attributes, m.id FROM {part behind}
    UNION ALL
    SELECT d.size, d.attributes, NULL FROM {s}delayed d WHERE d.ring = :ring AND d.origin = :origin
)
SELECT :origin, b.size + coalesce((SELECT l.total - f.total FROM first f, last l), 0)
       + ifnull(sum(r.size + iif(instr(r.attributes, '"headers":'), length(r.attributes), 0)), 0), count(r.id), b.ahead
FROM b LEFT JOIN r

-- name: add_up
-- Write sums of the inbox rows of a queue behind its last sum, one for each `step` rows. In one statement, as others may
-- send meanwhile. The first sum is empty.
INSERT INTO {s}inbox_sum (ring, origin, below, total)
WITH last AS (
    SELECT s.below, s.total FROM {s}inbox_sum s
    WHERE s.ring = :ring AND s.origin = :origin ORDER BY s.below DESC LIMIT 1
), r AS (
    SELECT m.id, row_number() OVER w AS place,
           sum(m.size + iif(instr(m.attributes, '"headers":'), length(m.attributes), 0)) OVER w AS total
    FROM {part behind} WINDOW w AS (ORDER BY m.id)
)
SELECT :ring, :origin, r.id + 1, l.total + r.total FROM last l, r WHERE r.place % :step = 0
UNION ALL
SELECT :ring, :origin, coalesce((SELECT b.floor FROM {s}book b WHERE b.ring = :ring AND b.origin = :origin), 0), 0
WHERE NOT EXISTS (SELECT 1 FROM last)

-- name: add_up (postgres)
SELECT {s}add_up(:ring, :names::text[], :step)

-- name: forget_sums (sqlite)
-- Delete sums below the floor of a queue, which no check reads; the last one stays.
DELETE FROM {s}inbox_sum
WHERE ring = :ring AND origin = :origin AND below < min(
    (SELECT b.floor FROM {s}book b WHERE b.ring = :ring AND b.origin = :origin),
    (SELECT max(s.below) FROM {s}inbox_sum s WHERE s.ring = :ring AND s.origin = :origin))

-- name: depths
-- Return for each queue: inbox rows not yet cut, at most `most`; when its first message was sent; recently sent
-- messages; and set-aside messages in at most `most` pages.
SELECT :origin AS origin, count(*), coalesce(sum(u.items), 0), coalesce(sum(u.size), 0),
       (SELECT m.sent_at FROM {s}inbox m WHERE m.ring = :ring AND m.origin = :origin AND m.id = coalesce(
           (SELECT p.first_row FROM {s}page p
            WHERE p.ring = :ring AND p.origin = :origin AND p.page >= :begin ORDER BY p.page LIMIT 1),
           (SELECT min(f.id) FROM {s}inbox f WHERE f.ring = :ring AND f.origin = :origin AND f.id >= :floor))) AS oldest,
       (SELECT coalesce(sum(l.items), 0) FROM (
           SELECT m.items, m.sent_at FROM {s}inbox m
           WHERE m.ring = :ring AND m.origin = :origin ORDER BY m.id DESC LIMIT :latest) l
        WHERE l.sent_at > :since) AS lately,
       (SELECT coalesce(sum(k.set_aside), 0) FROM (
           SELECT p.set_aside FROM {s}page p
           WHERE p.ring = :ring AND p.origin = :origin AND p.set_aside > 0 LIMIT :most) k) AS set_aside
FROM (SELECT m.items, m.size FROM {s}inbox m
      WHERE m.ring = :ring AND m.origin = :origin AND m.id >= :floor ORDER BY m.id LIMIT :most) u

-- name: depths (postgres)
SELECT w.origin, u.rows, u.items, u.size,
       (SELECT m.sent_at FROM {s}inbox m
        WHERE m.ring = :ring AND m.origin = w.origin AND m.id = coalesce(
           (SELECT p.first_row FROM {s}page p
            WHERE p.ring = :ring AND p.origin = w.origin AND p.page >= w.begin ORDER BY p.page LIMIT 1),
           (SELECT f.id FROM {s}inbox f
            WHERE f.ring = :ring AND f.origin = w.origin AND f.id >= w.floor ORDER BY f.id LIMIT 1))) AS oldest,
       (SELECT coalesce(sum(l.items), 0)::bigint FROM (
           SELECT m.items, m.sent_at FROM {s}inbox m
           WHERE m.ring = :ring AND m.origin = w.origin ORDER BY m.id DESC LIMIT :latest) l
        WHERE l.sent_at > :since) AS lately,
       (SELECT coalesce(sum(k.set_aside), 0)::bigint FROM (
           SELECT p.set_aside FROM {s}page p
           WHERE p.ring = :ring AND p.origin = w.origin AND p.set_aside > 0 LIMIT :most) k) AS set_aside
FROM {each origin text[], floor bigint[], begin bigint[]}
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, coalesce(sum(n.items), 0)::bigint AS items, coalesce(sum(n.size), 0)::bigint AS size
    FROM (SELECT m.items, m.size FROM {s}inbox m
          WHERE m.ring = :ring AND m.origin = w.origin AND m.id >= w.floor ORDER BY m.id LIMIT :most) n
) u

-- part: ahead
-- The value `ahead` of the one row `u` that has it.
max(u.ahead)

-- part: ahead (postgres)
string_agg(u.ahead, '')

-- name: counts
-- Return what the next queues by name hold: those of at most `books` books and, but for the last one, `rows` inbox rows.
-- The first waiting message of a queue is in its first waiting page, or else in its first inbox row not yet cut. Rows that
-- were cut before rows with smaller ids count twice: `ahead` has their ids. Pages before the window hold set-aside
-- messages only. Books, inbox rows and pages come as one list, as a join without hashing or merging compares each with each.
WITH batch AS (
    SELECT min(e.origin) AS last FROM (
        SELECT x.origin FROM (
            SELECT b.origin FROM {s}book b WHERE b.ring = :ring AND b.origin > :after
            ORDER BY b.origin LIMIT 1 OFFSET :books
        ) x
        UNION ALL SELECT y.origin FROM (
            SELECT m.origin FROM {s}inbox m WHERE m.ring = :ring AND m.origin > :after
            ORDER BY m.origin, m.id LIMIT 1 OFFSET :rows
        ) y
        UNION ALL SELECT CAST(:end AS text)
    ) e
), stored AS (
    SELECT b.origin, b.floor, b.begin_page, b.ahead, b.messages, b.size, CAST(NULL AS bigint) AS place,
           CAST(NULL AS bigint) AS sent, 0 AS aside
    FROM {s}book b WHERE b.ring = :ring AND b.origin > :after AND b.origin <= (SELECT n.last FROM batch n)
    UNION ALL
    SELECT m.origin, NULL, NULL, NULL, m.items, m.size, m.id, m.sent_at, 0
    FROM {s}inbox m WHERE m.ring = :ring AND m.origin > :after AND m.origin <= (SELECT n.last FROM batch n)
    UNION ALL
    SELECT p.origin, NULL, NULL, NULL, 0, p.remaining_size, p.page, (
               SELECT sum(a.size) FROM {s}set_aside a WHERE a.ring = p.ring AND a.origin = p.origin AND a.page = p.page
           ), p.set_aside
    FROM {s}page p
    WHERE p.ring = :ring AND p.set_aside > 0 AND p.origin > :after AND p.origin <= (SELECT n.last FROM batch n)
), held AS (
    SELECT s.*, max(s.begin_page) OVER w AS first,
           s.place IS NULL OR (s.aside = 0 AND s.place >= coalesce(max(s.floor) OVER w, 0)) AS counts
    FROM stored s
    WINDOW w AS (PARTITION BY s.origin)
), sums AS (
    SELECT u.origin, min(u.first) AS first, sum(CASE WHEN u.place IS NULL THEN u.messages ELSE -u.aside END) AS waiting,
           sum(CASE WHEN u.counts THEN u.messages END) AS messages, sum(CASE WHEN u.counts THEN u.size END) AS size,
           min(CASE WHEN u.counts THEN u.sent END) AS sent, sum(u.aside) AS aside,
           sum(CASE WHEN u.aside > 0 THEN CASE WHEN u.place < u.first THEN u.size ELSE u.sent END END) AS aside_size,
           {part ahead} AS ahead
    FROM held u
    GROUP BY u.origin
)
SELECT h.origin, CAST(h.messages AS bigint), CAST(h.size AS bigint), coalesce(CASE WHEN h.waiting > 0 THEN (
           SELECT m.sent_at FROM {s}page p
           JOIN {s}inbox m ON m.ring = p.ring AND m.origin = p.origin AND m.id = p.first_row
           WHERE p.ring = :ring AND p.origin = h.origin AND p.page >= h.first
           ORDER BY p.page LIMIT 1
       ) END, h.sent), CAST(h.aside AS bigint), CAST(coalesce(h.aside_size, 0) AS bigint), h.ahead
FROM sums h
WHERE h.messages IS NOT NULL
ORDER BY 1
