-- The schema: inbox rows, pages cut over them, books of pages, blocks with their claims, and events.
-- Times are microseconds since 1970 of the database's clock.
-- Weights are two unsigned 64-bit numbers, big-endian, in 16 bytes.

-- Ids and tickets come from one counter, in one order.
CREATE TABLE {s}counter (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO {s}counter VALUES (1, 0);

CREATE TABLE {s}ring (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
) STRICT;

-- One row per ring. A process that changes its books locks it.
CREATE TABLE {s}ring_state (
    ring INTEGER PRIMARY KEY REFERENCES {s}ring (id) ON DELETE CASCADE,
    version INTEGER NOT NULL DEFAULT 0,
    -- No ready book has a smaller ticket; no inbox row with a smaller id is unknown to the ring.
    ticket_floor INTEGER NOT NULL DEFAULT 0,
    look_floor INTEGER NOT NULL DEFAULT 0,
    lease_token BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    lease_holder TEXT NOT NULL DEFAULT '',
    -- The number of the ring's latest block.
    blocks INTEGER NOT NULL DEFAULT 0,
    -- A worker keeps its lease from one service to the next while messages come. A process that finds the ring in use sets
    -- this flag, and the worker gives the lease back. To take the lease clears the flag.
    lease_wanted INTEGER NOT NULL DEFAULT 0,
    -- A walk that met many queues whose messages do not fit looks further, from a place that the ring remembers: a ticket
    -- below which the next look goes on, for regular books and for high ones. By default it begins at the end of the ring.
    look_place INTEGER NOT NULL DEFAULT 9223372036854775807,
    high_place INTEGER NOT NULL DEFAULT 9223372036854775807,
    -- Parts of a block that high messages owe to regular ones.
    debt INTEGER NOT NULL DEFAULT 0,
    -- How many recorded ends are to be applied, so that no holder has to look for any.
    ends INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The inbox: what one call sent to one origin, at most a page's worth a row. Rows never change.
CREATE TABLE {s}inbox (
    id INTEGER PRIMARY KEY,
    sent_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    size INTEGER NOT NULL,
    items INTEGER NOT NULL DEFAULT 1,
    ring INTEGER NOT NULL,
    more INTEGER NOT NULL DEFAULT 0,
    origin TEXT NOT NULL,
    lengths BLOB NOT NULL DEFAULT x'',
    attributes BLOB NOT NULL DEFAULT x'',
    heap BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX {s}inbox_by_origin ON {s}inbox (ring, origin, id);

-- Rows that join their queue later: sent with a due time, or waiting aside for another try.
CREATE TABLE {s}delayed (
    id INTEGER PRIMARY KEY,
    due INTEGER NOT NULL,
    size INTEGER NOT NULL,
    items INTEGER NOT NULL,
    ring INTEGER NOT NULL,
    more INTEGER NOT NULL DEFAULT 0,
    origin TEXT NOT NULL,
    lengths BLOB NOT NULL DEFAULT x'',
    attributes BLOB NOT NULL DEFAULT x'',
    heap BLOB NOT NULL,
    -- A message that waits aside for another try keeps its time of sending. Others join their queues as if they were sent
    -- then.
    sent_at INTEGER
) STRICT;
CREATE INDEX {s}delayed_by_due ON {s}delayed (ring, due, id);
-- A call with new origins asks whether one has delayed messages.
CREATE INDEX {s}delayed_by_origin ON {s}delayed (ring, origin);

CREATE TABLE {s}book (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    begin_page INTEGER NOT NULL DEFAULT 0,
    end_page INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0 CHECK (pages >= 0),
    messages INTEGER NOT NULL DEFAULT 0 CHECK (messages >= 0),
    size INTEGER NOT NULL DEFAULT 0 CHECK (size >= 0),
    -- The ring's order is the order of tickets, for high books and for regular ones; the head has the smallest.
    ticket INTEGER,
    deficit INTEGER NOT NULL DEFAULT 0,
    -- Inbox rows below the floor are in pages; so are those at or above it that `ahead` names.
    floor INTEGER NOT NULL DEFAULT 0,
    ahead BLOB NOT NULL DEFAULT x'',
    wake_at INTEGER NOT NULL DEFAULT 0,
    -- Whether messages of the book have high priority, which its name shows.
    high INTEGER NOT NULL AS (origin < char(2)),
    PRIMARY KEY (ring, origin),
    CHECK (begin_page <= end_page),
    CHECK ((ticket IS NOT NULL) = (end_page > begin_page))
) STRICT;
CREATE INDEX {s}book_by_ticket ON {s}book (ring, high DESC, ticket) WHERE ticket IS NOT NULL;
-- Books outlive their messages, so an origin limit counts those that store some.
CREATE INDEX {s}book_that_stores ON {s}book (ring, origin) WHERE pages > 0 OR ticket IS NOT NULL;

CREATE TABLE {s}page (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    page INTEGER NOT NULL,
    items INTEGER NOT NULL CHECK (items > 0),
    used INTEGER NOT NULL,
    first_index INTEGER NOT NULL,
    remaining INTEGER NOT NULL CHECK (remaining > 0),
    remaining_size INTEGER NOT NULL,
    -- Set-aside messages.
    set_aside INTEGER NOT NULL DEFAULT 0,
    first_row INTEGER NOT NULL,
    last_row INTEGER NOT NULL,
    slices BLOB NOT NULL,
    lengths BLOB NOT NULL,
    marks BLOB NOT NULL DEFAULT x'',
    notes BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (ring, origin, page),
    CHECK (first_index BETWEEN 0 AND items)
) STRICT;
CREATE INDEX {s}page_with_set_aside ON {s}page (ring, origin, page) WHERE set_aside > 0;

CREATE TABLE {s}set_aside (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    page INTEGER NOT NULL,
    item INTEGER NOT NULL,
    id BLOB NOT NULL,
    size INTEGER NOT NULL,
    weight BLOB,
    weight_limit BLOB,
    reason TEXT NOT NULL,
    block INTEGER,
    at INTEGER NOT NULL,
    -- When it arrived, and the first block that was planned after that.
    arrived_at INTEGER NOT NULL DEFAULT 0,
    arrived_block INTEGER,
    PRIMARY KEY (ring, origin, page, item)
) STRICT;
CREATE INDEX {s}set_aside_by_time ON {s}set_aside (ring, at);
CREATE INDEX {s}set_aside_by_block ON {s}set_aside (ring, block, origin, page, item);
CREATE INDEX {s}set_aside_by_first_block ON {s}set_aside (ring, arrived_block, origin, page, item);

CREATE TABLE {s}pause (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    who TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    until INTEGER,
    -- Whether all below an origin is paused with it.
    below INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin)
) STRICT;
CREATE INDEX {s}pause_of_groups ON {s}pause (ring) WHERE below;

CREATE TABLE {s}setting (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    settings TEXT NOT NULL,
    guaranteed INTEGER NOT NULL DEFAULT 0,
    -- The most bytes that it may store; in a ring with paths together with all below it.
    quota INTEGER,
    PRIMARY KEY (ring, origin)
) STRICT;
CREATE INDEX {s}setting_with_quota ON {s}setting (ring, origin) WHERE quota IS NOT NULL;
CREATE INDEX {s}setting_with_least ON {s}setting (ring, origin) WHERE guaranteed;

-- Sums of the inbox rows of queues with a quota. The difference of the totals of two rows is what the inbox rows between
-- their ids hold, as long as none of these lies in a page.
CREATE TABLE {s}inbox_sum (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    -- The id below which rows are added up.
    below INTEGER NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY (ring, origin, below)
) STRICT;

-- Balances of budgets over time, of origins and of paths that have one. A missing row is a full bucket.
CREATE TABLE {s}bucket (
    ring INTEGER NOT NULL,
    path TEXT NOT NULL,
    -- Grains of each part, until when it is refilled, the weight that it waits to cover, and since when it is exhausted:
    -- JSON with whole numbers beyond 64 bits. Empty for a full bucket.
    balance TEXT NOT NULL,
    -- No message of the bucket starts before this time. Negative if its settings changed while its queues waited.
    wake_at INTEGER NOT NULL DEFAULT 0,
    -- How often its settings changed: a balance that was read before a change does not keep the queues waiting.
    terms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, path)
) STRICT;
CREATE INDEX {s}bucket_renewed ON {s}bucket (ring) WHERE wake_at < 0;

-- Groups of origins, for rings with paths.
CREATE TABLE {s}origin_group (
    ring INTEGER NOT NULL,
    -- Ends in a slash, but for the outermost group, which has the empty path.
    path TEXT NOT NULL,
    deficit INTEGER NOT NULL,
    level INTEGER NOT NULL,
    -- Of the outermost group: who comes first in the next block.
    owed TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (ring, path)
) STRICT;

-- A block: planned (0), settled (1) or released (2). Blocks of a ring are numbered 1, 2, 3 ...
CREATE TABLE {s}block (
    id INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    key TEXT,
    token BLOB NOT NULL UNIQUE,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    by_hand INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL,
    deadline INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    ended_at INTEGER,
    details TEXT NOT NULL,
    number INTEGER NOT NULL DEFAULT 0,
    CHECK ((state = 0) = (ended_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX {s}block_live_key ON {s}block (ring, key) WHERE state = 0;
CREATE INDEX {s}block_live ON {s}block (ring, deadline) WHERE state = 0;
CREATE INDEX {s}block_ended ON {s}block (ring, ended_at) WHERE state <> 0;
CREATE UNIQUE INDEX {s}block_by_number ON {s}block (ring, number);

CREATE TABLE {s}claim (
    block INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    by_hand INTEGER NOT NULL DEFAULT 0,
    data BLOB NOT NULL,
    PRIMARY KEY (block, seq)
) STRICT;
CREATE INDEX {s}claim_by_origin ON {s}claim (ring, origin);

CREATE TABLE {s}outcome (
    id INTEGER PRIMARY KEY,
    block INTEGER NOT NULL,
    data BLOB NOT NULL,
    -- Names the external payloads of messages that the block sends when it ends, as in an inbox row.
    attributes BLOB NOT NULL DEFAULT x''
) STRICT;
CREATE INDEX {s}outcome_by_block ON {s}outcome (block, id);

-- One writer per ring: a process that does not hold the ring records how a block ended, and the process that holds it
-- applies that. The row exists between the two; the claims and reports of its block stay as long. An end that cannot be
-- applied keeps the reason, and its messages stay in flight.
CREATE TABLE {s}ending (
    ring INTEGER NOT NULL,
    block INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    terms TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (ring, block)
) STRICT;
CREATE UNIQUE INDEX {s}ending_by_number ON {s}ending (ring, number);

CREATE TABLE {s}event (
    id INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    block INTEGER,
    at INTEGER NOT NULL,
    events INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX {s}event_by_origin ON {s}event (ring, origin, id);
CREATE INDEX {s}event_by_time ON {s}event (ring, at);

-- What queues paid for their messages, by queue and processor: one row for each save.
CREATE TABLE {s}charge (
    id INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    block INTEGER,
    -- The DAG or program that serviced the messages.
    server TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX {s}charge_in_order ON {s}charge (ring, id);
CREATE INDEX {s}charge_by_time ON {s}charge (ring, at);

-- Sums of charges by day of UTC since 1970, packed by queue, processor and server. They outlive the rows.
CREATE TABLE {s}usage_day (
    ring INTEGER NOT NULL,
    day INTEGER NOT NULL,
    -- The last charge that was added.
    last INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ring, day)
) STRICT;

-- Headers of the bills of closed days of UTC: each day without gaps, and none changes.
CREATE TABLE {s}bill_day (
    ring INTEGER NOT NULL,
    day INTEGER NOT NULL,
    -- The last charge in the bills of this day; the day before ends before its first one.
    last INTEGER NOT NULL,
    -- The hash of the header before.
    before BLOB NOT NULL,
    root BLOB NOT NULL,
    leaves INTEGER NOT NULL,
    PRIMARY KEY (ring, day)
) STRICT;

-- What the bills of a closed day contain, by tenant, as the canonical JSON that is hashed.
CREATE TABLE {s}bill_leaf (
    ring INTEGER NOT NULL,
    day INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    place INTEGER NOT NULL,
    salt BLOB NOT NULL,
    path BLOB NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ring, day, tenant)
) STRICT;

-- Two rings may have a block of the same number. What was sent before a block has smaller ids.
CREATE TABLE {s}ledger (
    ring INTEGER NOT NULL,
    block INTEGER NOT NULL,
    id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ring, block)
) STRICT;
CREATE INDEX {s}ledger_by_time ON {s}ledger (ring, at);

-- Each origin has its own idempotency keys. Keys of chunks belong to no single origin; theirs is the empty text.
CREATE TABLE {s}sent_key (
    ring INTEGER NOT NULL,
    key TEXT NOT NULL,
    origin TEXT NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (ring, key, origin)
) STRICT;
CREATE INDEX {s}sent_key_by_time ON {s}sent_key (ring, at);

-- Measured use against length, as the sums that a straight line is fitted from.
CREATE TABLE {s}measure (
    ring INTEGER NOT NULL,
    processor TEXT NOT NULL,
    origin TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (ring, processor, origin)
) STRICT;

-- External payloads, larger than a page: each once by its hash, as long as a message or an upload refers to it.

-- Bytes that arrive or have arrived. The sweep deletes uploads of no blob whose time has passed.
CREATE TABLE {s}upload (
    id INTEGER PRIMARY KEY,
    -- When it is given up; NULL for the upload of a blob.
    until INTEGER,
    -- The folder of its file; empty if its bytes are in chunks.
    path TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX {s}upload_past ON {s}upload (until, id) WHERE until IS NOT NULL;

CREATE TABLE {s}chunk (
    upload INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (upload, seq)
) STRICT;

CREATE TABLE {s}blob (
    hash TEXT PRIMARY KEY,
    size INTEGER NOT NULL CHECK (size > 0),
    upload INTEGER NOT NULL UNIQUE REFERENCES {s}upload (id),
    at INTEGER NOT NULL
) STRICT;

-- References to a blob: by a message, named by its inbox row and its place there; by a report to a block that will send
-- such messages; or until a time by an upload.
-- A deleted message leaves an ended use. By these, the sweep finds unused blobs.
CREATE TABLE {s}blob_use (
    inbox_row INTEGER NOT NULL,
    place INTEGER NOT NULL,
    hash TEXT NOT NULL REFERENCES {s}blob (hash),
    until INTEGER,
    PRIMARY KEY (inbox_row, place)
) STRICT;
CREATE INDEX {s}blob_use_by_hash ON {s}blob_use (hash);
CREATE INDEX {s}blob_use_past ON {s}blob_use (until, hash) WHERE until IS NOT NULL;

-- Uses follow the inbox rows of any writer. Rows without references pay for a look at their attributes.
-- A reference to a missing blob is stored, too. The error appears when the message is processed.
CREATE TRIGGER {s}inbox_uses_blobs AFTER INSERT ON {s}inbox
WHEN NEW.attributes <> x'' AND instr(NEW.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    INSERT INTO {s}blob_use (inbox_row, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN {s}blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER {s}inbox_leaves_blobs AFTER DELETE ON {s}inbox
WHEN OLD.attributes <> x'' AND instr(OLD.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE inbox_row = OLD.id AND until IS NULL;
END;
CREATE TRIGGER {s}delayed_uses_blobs AFTER INSERT ON {s}delayed
WHEN NEW.attributes <> x'' AND instr(NEW.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    INSERT INTO {s}blob_use (inbox_row, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN {s}blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER {s}delayed_leaves_blobs AFTER DELETE ON {s}delayed
WHEN OLD.attributes <> x'' AND instr(OLD.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE inbox_row = OLD.id AND until IS NULL;
END;
CREATE TRIGGER {s}outcome_uses_blobs AFTER INSERT ON {s}outcome WHEN NEW.attributes <> x'' BEGIN
    INSERT INTO {s}blob_use (inbox_row, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN {s}blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER {s}outcome_leaves_blobs AFTER DELETE ON {s}outcome WHEN OLD.attributes <> x'' BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE inbox_row = OLD.id AND until IS NULL;
END;
