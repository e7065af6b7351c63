-- Rings: names, settings, floors, leases and the ring lock; ids and clock of the database.

-- part: newest
-- Select the state of a ring.
ring = :ring

-- part: newest (postgres)
-- Read past no older version of the row. The newest one may belong to a transaction that ends while this one waits.
ring = :ring AND age <= (SELECT n.age FROM {s}ring_state n WHERE n.ring = :ring ORDER BY n.age LIMIT 1)

-- part: state_columns (postgres)
-- The state of a ring `s`.
s.version, s.ticket_floor, s.look_floor, s.marks, s.lease_token, s.lease_until, s.lease_holder, s.lease_wanted,
s.look_place, s.high_place, s.debt, s.ends, s.blocks, {part in_use}

-- part: in_use
-- Whether any origin of the ring of a state `s` has, or had, a budget over time, and whether any has a guaranteed least.
EXISTS (SELECT 1 FROM {s}bucket k WHERE k.ring = s.ring),
EXISTS (SELECT 1 FROM {s}setting t WHERE t.ring = s.ring AND t.guaranteed)

-- part: last_drawn (postgres)
-- The last id drawn. The function reads the sequence under the lock of its buffer. A plain SELECT of the
-- sequence's row may read the value that `nextval` logs, up to 32 ahead of the last id drawn. Ids drawn later
-- would then count as visible to all.
coalesce(pg_catalog.pg_sequence_last_value('{s}id_seq'), 0)

-- part: by_age
-- The newest of the rows `s` of a state: SQLite has one only.

-- part: by_age (postgres)
ORDER BY s.age LIMIT 1

-- name: rings
-- Return all rings in order of names, or the one of a name, each with the database's clock in microseconds, the number of
-- recorded ends that are to be applied, and whether any queue has a quota.
SELECT r.id, r.name, r.config, {clock}, (SELECT s.ends FROM {s}ring_state s WHERE s.ring = r.id {part by_age}),
       EXISTS (SELECT 1 FROM {s}setting t WHERE t.ring = r.id AND t.quota IS NOT NULL)
FROM {s}ring r
WHERE CAST(:name AS text) IS NULL OR r.name = :name
ORDER BY r.name

-- name: hold_config
-- Return the settings of a ring. The writing transaction is the only one, so the settings stay current.
SELECT r.config FROM {s}ring r WHERE r.id = :ring

-- name: hold_config (postgres)
-- Lock the ring's row: the settings stay current, and processes that add up charges wait for each other.
SELECT r.config FROM {s}ring r WHERE r.id = :ring FOR NO KEY UPDATE

-- name: hold_origins
-- Let senders that may add a queue to a ring with an origin limit wait for each other; return whether the next statement
-- sees the queues that others added. The writing transaction is the only one.
SELECT true FROM {s}ring r WHERE r.id = :ring

-- name: hold_origins (postgres)
-- Nothing else waits for them, so they lock no row.
SELECT left(current_setting('transaction_isolation'), 4) = 'read',
       CAST(pg_advisory_xact_lock(CAST(CAST('{s}ring'::regclass AS oid) AS integer), r.id) AS text)
FROM {s}ring r WHERE r.id = :ring

-- name: insert_ring
-- Create a ring and return its id; return no row if the name exists.
INSERT INTO {s}ring (name, config) VALUES (:name, {json config}) ON CONFLICT DO NOTHING RETURNING id

-- name: insert_state
-- Create the state of a new ring.
INSERT INTO {s}ring_state (ring) VALUES (:ring)

-- name: change_ring
-- Replace the settings of a ring. Requires the ring lock.
UPDATE {s}ring SET config = :config WHERE id = :ring

-- name: change_ring (postgres)
-- Keep the mark `high` that a concurrent sender may have set.
UPDATE {s}ring
SET config = :config::jsonb || CASE
    WHEN (config ->> 'high')::boolean THEN '{"high": true}'::jsonb ELSE '{}'::jsonb
END
WHERE id = :ring

-- name: allow_high
-- Record in the settings that the ring receives messages of high priority.
UPDATE {s}ring SET config = json_set(config, '$.high', json('true'))
WHERE id = :ring AND NOT coalesce(json_extract(config, '$.high'), 0)

-- name: allow_high (postgres)
-- Lock the ring's row of settings until the commit, but only the first time.
UPDATE {s}ring SET config = config || '{"high": true}'::jsonb
WHERE id = :ring AND NOT coalesce((config ->> 'high')::boolean, false)

-- name: state
-- Return the state of a ring for readers, without the token of its lease.
SELECT s.version, s.ticket_floor, s.look_floor, '', NULL, s.lease_until, s.lease_holder, s.lease_wanted, s.look_place,
       s.high_place, s.debt, s.ends, s.blocks, {part in_use}
FROM {s}ring_state s WHERE s.ring = :ring {part by_age}

-- name: lock_ring
-- Return the state of a ring, its settings, the last id drawn and the version. The writing transaction is the only one, so
-- it holds the ring lock.
SELECT s.version, s.ticket_floor, s.look_floor, '', s.lease_token, s.lease_until, s.lease_holder, s.lease_wanted,
       s.look_place, s.high_place, s.debt, s.ends, s.blocks, {part in_use},
       r.config, (SELECT last FROM {s}counter), (SELECT max(version) FROM {s}migration)
FROM {s}ring_state s
JOIN {s}ring r ON r.id = s.ring
WHERE s.ring = :ring

-- name: lock_ring (postgres)
-- Return the state of a ring and hold the ring lock until the end of the transaction: lock the row of state.
-- The last id is read before the next statement takes its snapshot; only then can it serve as a mark. After a wait,
-- PostgreSQL reads only the locked row again: `snapshot` reads all else, the settings included.
SELECT {part state_columns}, {part last_drawn} FROM {s}ring_state s WHERE s.ring = :ring {part by_age} FOR UPDATE

-- name: try_lock_ring (postgres)
-- Like `lock_ring`, but return no row if another transaction holds the ring lock.
SELECT {part state_columns}, {part last_drawn} FROM {s}ring_state s WHERE s.ring = :ring {part by_age} {part for_update}

-- name: leased_ring (postgres)
-- Return the state of a ring for the process that leases it, without the ring lock, its settings, the clock, the number
-- below which all transactions have ended, and one that no transaction that has ended reached.
SELECT {part state_columns},
       r.config, {clock}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM {s}ring_state s
JOIN {s}ring r ON r.id = s.ring
WHERE s.ring = :ring {part by_age}

-- name: save_state
-- Write the floors of a ring and count the change. Requires the ring lock.
UPDATE {s}ring_state
SET version = version + 1, ticket_floor = :ticket_floor, look_floor = :look_floor,
    look_place = :look_place, high_place = :high_place, debt = :debt
WHERE {part newest}

-- name: save_state (postgres)
-- Write the marks and the next age, too.
UPDATE {s}ring_state
SET version = version + 1, ticket_floor = :ticket_floor, look_floor = :look_floor, marks = :marks::jsonb, age = age - 1,
    look_place = :look_place, high_place = :high_place, debt = :debt
WHERE {part newest}

-- part: without_disk
-- Let the commit not wait for the disk, where the database allows that.
true

-- part: without_disk (postgres)
set_config('synchronous_commit', 'off', true) = 'off'

-- name: take_lease
-- Lease the ring to a process across transactions. Requires the ring lock. A server that crashes may forget the lease;
-- then the holder's results are refused by its token, and its messages are tried again. Commits of results wait.
UPDATE {s}ring_state
SET lease_token = :token, lease_until = :until, lease_holder = :holder, lease_wanted = false
WHERE {part newest} AND {part without_disk}

-- name: want_lease
-- Ask the process that leases a ring to give the lease back. Requires the ring lock. The process that waits repeats this.
UPDATE {s}ring_state SET lease_wanted = true WHERE {part newest} AND {part without_disk}

-- name: change_lease
-- Extend the lease of a ring, or end it, which leaves no next token, if the process still has it. A holder that did not end
-- it itself stays named.
UPDATE {s}ring_state SET lease_token = :next, lease_until = :until, lease_holder = coalesce(:holder, lease_holder)
WHERE {part newest} AND lease_token = :token

-- name: count_ends
-- Change the number of recorded ends that are to be applied. Requires the ring lock.
UPDATE {s}ring_state SET ends = ends + :more WHERE {part newest}

-- name: fresh_ids
-- Draw ids and return the last one.
UPDATE {s}counter SET last = last + :count RETURNING last

-- name: fresh_ids (postgres)
-- Draw ids and return each. The transaction gets its number first: a horizon must not pass an id drawn here.
SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('{s}id_seq') END FROM generate_series(1, (SELECT :count::bigint))

-- name: last_id
-- Return the last id drawn, and whether this transaction has a number already.
SELECT c.last, true FROM {s}counter c

-- name: last_id (postgres)
SELECT {part last_drawn}, pg_current_xact_id_if_assigned() IS NOT NULL

-- name: snapshot (postgres)
-- Return the number below which all transactions have ended, this transaction's number, the clock, the version, and the
-- settings of a ring as its last holder left them. Requires the ring lock.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint,
       {clock}, (SELECT max(version) FROM {s}migration), (SELECT r.config FROM {s}ring r WHERE r.id = :ring)

-- name: now
-- Return the database's clock in microseconds.
SELECT {clock}
