-- The first schema: mail, pages cut over it, books of pages, claims of blocks, and what became of it.
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

-- One row per ring, locked by whoever changes its books.
CREATE TABLE {s}state (
    ring INTEGER PRIMARY KEY REFERENCES {s}ring (id) ON DELETE CASCADE,
    version INTEGER NOT NULL DEFAULT 0,
    -- No ready book has a smaller ticket; no mail with a smaller id is unknown to the ring.
    ticket_floor INTEGER NOT NULL DEFAULT 0,
    look_floor INTEGER NOT NULL DEFAULT 0,
    lease_token BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    lease_holder TEXT NOT NULL DEFAULT ''
) STRICT;

-- What one call sent to one origin, at most a page's worth a row; never changed once written.
CREATE TABLE {s}mail (
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
CREATE UNIQUE INDEX {s}mail_by_origin ON {s}mail (ring, origin, id);

-- Mail that joins its queue later: sent with a due time, or waiting for another try.
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
    heap BLOB NOT NULL
) STRICT;
CREATE INDEX {s}delayed_by_due ON {s}delayed (ring, due, id);

CREATE TABLE {s}book (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    begin_page INTEGER NOT NULL DEFAULT 0,
    end_page INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0 CHECK (pages >= 0),
    messages INTEGER NOT NULL DEFAULT 0 CHECK (messages >= 0),
    size INTEGER NOT NULL DEFAULT 0 CHECK (size >= 0),
    -- The ring's order is the order of tickets; the head has the smallest.
    ticket INTEGER,
    deficit INTEGER NOT NULL DEFAULT 0,
    -- Mail below the floor is in pages; so is the mail named by `ahead`, at or above it.
    floor INTEGER NOT NULL DEFAULT 0,
    ahead BLOB NOT NULL DEFAULT x'',
    wake_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin),
    CHECK (begin_page <= end_page),
    CHECK ((ticket IS NOT NULL) = (end_page > begin_page))
) STRICT;
CREATE INDEX {s}book_by_ticket ON {s}book (ring, ticket) WHERE ticket IS NOT NULL;

CREATE TABLE {s}page (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    page INTEGER NOT NULL,
    items INTEGER NOT NULL CHECK (items > 0),
    used INTEGER NOT NULL,
    first_index INTEGER NOT NULL,
    remaining INTEGER NOT NULL CHECK (remaining > 0),
    remaining_size INTEGER NOT NULL,
    -- Messages that wait for a person.
    kept INTEGER NOT NULL DEFAULT 0,
    first_mail INTEGER NOT NULL,
    last_mail INTEGER NOT NULL,
    slices BLOB NOT NULL,
    lengths BLOB NOT NULL,
    marks BLOB NOT NULL DEFAULT x'',
    notes BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (ring, origin, page),
    CHECK (first_index BETWEEN 0 AND items)
) STRICT;
CREATE INDEX {s}page_with_kept ON {s}page (ring, origin, page) WHERE kept > 0;

CREATE TABLE {s}aside (
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
    PRIMARY KEY (ring, origin, page, item)
) STRICT;
CREATE INDEX {s}aside_by_time ON {s}aside (ring, at);

CREATE TABLE {s}pause (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    who TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (ring, origin)
) STRICT;

CREATE TABLE {s}standing (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    settings TEXT NOT NULL,
    guaranteed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin)
) STRICT;
CREATE INDEX {s}standing_with_least ON {s}standing (ring, origin) WHERE guaranteed;

-- A block: planned (0), settled (1) or released (2).
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
    CHECK ((state = 0) = (ended_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX {s}block_live_key ON {s}block (ring, key) WHERE state = 0;
CREATE INDEX {s}block_live ON {s}block (ring, deadline) WHERE state = 0;
CREATE INDEX {s}block_ended ON {s}block (ring, ended_at) WHERE state <> 0;

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
    data BLOB NOT NULL
) STRICT;
CREATE INDEX {s}outcome_by_block ON {s}outcome (block, id);

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

CREATE TABLE {s}ledger (
    block INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX {s}ledger_by_time ON {s}ledger (ring, at);

CREATE TABLE {s}sent_key (
    ring INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (ring, key)
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
