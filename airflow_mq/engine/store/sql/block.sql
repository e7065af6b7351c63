-- Blocks: their claims, reported outcomes and lives.

-- part: block_columns
-- Every column of a block `b`.
b.id, b.number, b.key, b.token, b.state, b.by_hand, b.seconds, b.deadline, b.planned_at, b.ended_at, b.details

-- part: block
-- Blocks, with every column.
SELECT {part block_columns} FROM {s}block b

-- part: oldest_live
-- An id at or below those of all blocks that hold messages; SQLite keeps no dead rows of others.
0

-- part: oldest_live (postgres)
(SELECT n.oldest_block FROM {s}ring_state n WHERE n.ring = :ring ORDER BY n.age LIMIT 1)

-- part: first_live (postgres)
-- The id of the oldest block that holds messages, if any, in an UPDATE of the state: one that lives, or one whose end is
-- recorded and not applied.
least(
    (SELECT b.id FROM {s}block b WHERE b.ring = :ring AND b.state = 0 AND b.id >= oldest_block ORDER BY b.id LIMIT 1),
    (SELECT e.block FROM {s}ending e WHERE e.ring = :ring ORDER BY e.block LIMIT 1)
)

-- name: next_block
-- Count up and return the number of a ring's next block. Requires the ring lock.
UPDATE {s}ring_state SET blocks = blocks + 1 WHERE ring = :ring RETURNING blocks

-- name: next_block (postgres)
-- Write the id of the oldest live block, too.
UPDATE {s}ring_state SET blocks = blocks + 1, oldest_block = coalesce({part first_live}, :id)
WHERE {part newest}
RETURNING blocks

-- name: insert_block
-- Write a planned block. Requires the ring lock.
INSERT INTO {s}block (id, ring, number, key, token, by_hand, seconds, deadline, planned_at, details)
VALUES (:id, :ring, :number, :key, :token, :by_hand, :seconds, :deadline, :planned_at, {json details})

-- name: first_blocks
-- Return for each id the number of the first block planned after it.
SELECT w.id, (
    SELECT b.number FROM {s}block b WHERE {part by_id}b.ring = :ring AND b.id > w.id AND NOT b.by_hand ORDER BY b.id LIMIT 1
)
FROM {each id bigint[]}

-- name: blocks
-- Return blocks before a number, the latest first; a negative state matches all.
{part block}
WHERE b.ring = :ring AND (:state < 0 OR b.state = :state) AND b.number < :before
ORDER BY b.number DESC
LIMIT :limit

-- name: block_by_key
-- Return the live block with this key.
{part block}
WHERE b.ring = :ring AND b.key = :key AND b.state = 0

-- name: block_by_token
-- Return a block by its token.
{part block}
WHERE b.ring = :ring AND b.token = :token

-- part: for_update
-- Skip the rows that another transaction holds, and lock the others. SQLite has one writing transaction only.

-- part: for_update (postgres)
FOR UPDATE SKIP LOCKED

-- name: lock_block
-- Return a block by its token, for settling or releasing it; skip it while a transaction reports to it.
{part block}
WHERE b.ring = :ring AND b.token = :token {part for_update}

-- name: dead_blocks
-- Return blocks whose deadline has passed, for releasing them; skip those that a transaction of a caller completes now.
{part block}
WHERE b.ring = :ring AND b.state = 0 AND b.id >= {part oldest_live} AND b.deadline <= :now
ORDER BY b.id {part for_update}

-- name: block_servers
-- Return the processes that planned the latest blocks, with the latest block of each.
SELECT max(b.number), b.planned_at, json_extract(b.details, '$.server') FROM (
    SELECT r.number, r.planned_at, r.details FROM {s}block r WHERE r.ring = :ring AND r.number < :before
    ORDER BY r.number DESC LIMIT :limit
) b
WHERE json_extract(b.details, '$.server') IS NOT NULL
GROUP BY json_extract(b.details, '$.server.name')

-- name: block_servers (postgres)
SELECT DISTINCT ON (b.details -> 'server' ->> 'name') b.number, b.planned_at, (b.details -> 'server')::text FROM (
    SELECT r.number, r.planned_at, r.details FROM {s}block r WHERE r.ring = :ring AND r.number < :before
    ORDER BY r.number DESC LIMIT :limit
) b
WHERE b.details -> 'server' IS NOT NULL
ORDER BY b.details -> 'server' ->> 'name', b.number DESC

-- name: renew_block
-- Extend the deadline of a live block, by its own seconds unless others are given, and return it. A renewal never moves
-- a deadline back: several workers of a block renew it, each by its own lease.
UPDATE {s}block SET deadline = max(deadline, :now + CAST(coalesce(:seconds, seconds) * 1000000 AS INTEGER))
WHERE ring = :ring AND token = :token AND state = 0 AND deadline > :now
RETURNING deadline

-- name: renew_block (postgres)
UPDATE {s}block
SET deadline = greatest(deadline, :now + trunc(coalesce(:seconds, seconds) * 1000000)::bigint)
WHERE ring = :ring AND token = :token AND state = 0 AND deadline > :now
RETURNING deadline

-- name: close_block
-- Close a live block for reports: it may be settled as soon as this is committed. No clock shows a time before 0, so
-- the block stays closed if the clock is set back, and for a transaction that read it earlier.
UPDATE {s}block SET deadline = 0 WHERE ring = :ring AND token = :token AND state = 0 AND deadline > :now

-- name: end_block
-- Record that a block was settled or released, which requires the ring lock, or why one that lives cannot be settled.
UPDATE {s}block SET state = :state, ended_at = :now, details = {json details} WHERE id = :block AND state = 0

-- part: first_ended
-- The blocks `b` that ended first after a time, and at or before another, and whose end is applied.
FROM {s}block b
WHERE b.ring = :ring AND b.state <> 0 AND b.ended_at > :after AND b.ended_at <= :before
      AND NOT EXISTS (SELECT 1 FROM {s}ending e WHERE e.ring = b.ring AND e.block = b.id)
ORDER BY b.ended_at LIMIT :limit

-- name: expire_block
-- Delete the blocks that ended first, at most `limit` rows.
DELETE FROM {s}block WHERE id IN (SELECT b.id {part first_ended})

-- name: expire_block (postgres)
-- Skip blocks that another transaction has locked.
DELETE FROM {s}block WHERE ctid = ANY (ARRAY(SELECT b.ctid {part first_ended} {part for_update}))

-- name: record_end
-- Record how a block ended, for the process that holds the ring. Requires the ring lock.
INSERT INTO {s}ending (ring, block, number, at, terms) VALUES (:ring, :block, :number, :at, {json terms})

-- name: ends
-- Return recorded ends in order, with their blocks: those to be applied, or also those that cannot be.
SELECT e.number, e.at, e.terms, e.error, {part block_columns}
FROM {s}ending e JOIN {s}block b ON b.id = e.block
WHERE e.ring = :ring AND (:all OR e.error = '')
ORDER BY e.number
LIMIT :limit

-- name: save_end
-- Write how far an end is applied, and the reason for which the rest cannot be, if any. Requires the ring lock.
UPDATE {s}ending SET terms = {json terms}, error = :error WHERE ring = :ring AND block = :block

-- name: delete_end
-- Forget the end of a block that is applied. Requires the ring lock.
DELETE FROM {s}ending WHERE ring = :ring AND block = :block

-- name: insert_claim
-- Write the claims of a block, in order of its visits. Requires the ring lock.
INSERT INTO {s}claim {rows ring, block bigint, by_hand boolean[], seq int[], origin text[], data bytea[]}

-- name: claims
-- Return the claims of a block, in order of its visits.
SELECT c.origin, c.data, c.block FROM {s}claim c WHERE c.block = :block ORDER BY c.seq

-- name: claims_of
-- Return the claims of live blocks on these queues, and of those whose end is not applied, with their blocks.
SELECT c.origin, c.data, c.block
FROM {each origin text[]}
JOIN {s}claim c ON c.ring = :ring AND c.origin = w.origin AND c.block >= {part oldest_live}

-- name: all_claims
-- Return all claims of a ring, with the state of their blocks, and whether their end is still to be applied.
SELECT c.origin, c.data, c.block, b.state, c.by_hand, e.block IS NOT NULL
FROM {s}claim c
LEFT JOIN {s}block b ON b.id = c.block
LEFT JOIN {s}ending e ON e.ring = c.ring AND e.block = c.block
WHERE c.ring = :ring ORDER BY c.block, c.seq

-- name: delete_claims
-- Delete the first claims of a block: those whose end is applied. Requires the ring lock.
DELETE FROM {s}claim WHERE block = :block AND seq < :seq

-- name: replace_claim
-- Write what is left of a claim. Requires the ring lock.
UPDATE {s}claim SET data = :data WHERE block = :block AND seq = :seq

-- name: report
-- Write a report to a live block.
INSERT INTO {s}outcome (id, block, data, attributes)
SELECT :id, b.id, :data, :attributes FROM {s}block b
WHERE b.ring = :ring AND b.token = :token AND b.state = 0 AND b.deadline > :now

-- name: report (postgres)
-- Keep the block from ending before this transaction does. Only the index of tokens can find it.
WITH named AS (
    SELECT b.id, b.ring, b.state, b.deadline FROM {s}block b WHERE b.token = :token FOR KEY SHARE
)
INSERT INTO {s}outcome (block, data, attributes)
SELECT n.id, :data, :attributes FROM named n WHERE n.ring = :ring AND n.state = 0 AND n.deadline > :now

-- name: outcomes
-- Return the reports to blocks, those to each in order.
SELECT o.block, o.data FROM {each block bigint[]} JOIN {s}outcome o ON o.block = w.block ORDER BY o.id

-- name: delete_outcomes
-- Delete the reports to a block. Requires the ring lock.
DELETE FROM {s}outcome WHERE block = :block
