-- The first schema: mail, pages cut over it, books of pages, claims of blocks, and what became of it.
-- Times are microseconds since 1970 of the database's clock, unless the type says otherwise.
-- Weights are two unsigned 64-bit numbers, big-endian, in 16 bytes.

CREATE SEQUENCE {s}id_seq;

CREATE TABLE {s}ring (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    config jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One row per ring, locked by whoever changes its books.
CREATE TABLE {s}state (
    ring smallint PRIMARY KEY REFERENCES {s}ring (id) ON DELETE CASCADE,
    version bigint NOT NULL DEFAULT 0,
    -- No ready book has a smaller ticket; no mail with a smaller id is unknown to the ring.
    ticket_floor bigint NOT NULL DEFAULT 0,
    look_floor bigint NOT NULL DEFAULT 0,
    -- Pairs (transaction id, last id given out before it began): what makes a floor certain.
    marks jsonb NOT NULL DEFAULT '[]',
    lease_token bytea,
    lease_until bigint NOT NULL DEFAULT 0,
    lease_holder text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- What one call sent to one origin, at most a page's worth a row; never changed once written.
-- The transaction id is drawn before the id: ids of later transactions are larger than any
-- that was given out before they began, which is what the marks of the state rest upon.
CREATE TABLE {s}mail (
    id bigint NOT NULL DEFAULT (CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('{s}id_seq') END),
    sent_at timestamptz NOT NULL DEFAULT now(),
    size integer NOT NULL,
    items integer NOT NULL DEFAULT 1,
    ring smallint NOT NULL,
    more boolean NOT NULL DEFAULT false,
    origin text COLLATE "C" NOT NULL,
    lengths bytea NOT NULL DEFAULT '',
    attributes bytea NOT NULL DEFAULT '',
    heap bytea NOT NULL
);
-- Payloads do not shrink enough to be worth the processor's time.
ALTER TABLE {s}mail ALTER COLUMN heap SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX mail_by_origin ON {s}mail (ring, origin, id);
CREATE INDEX mail_by_id ON {s}mail (ring, id);

-- Mail that joins its queue later: sent with a due time, or waiting for another try.
CREATE TABLE {s}delayed (
    id bigint PRIMARY KEY DEFAULT nextval('{s}id_seq'),
    due bigint NOT NULL,
    size integer NOT NULL,
    items integer NOT NULL,
    ring smallint NOT NULL,
    more boolean NOT NULL DEFAULT false,
    origin text COLLATE "C" NOT NULL,
    lengths bytea NOT NULL DEFAULT '',
    attributes bytea NOT NULL DEFAULT '',
    heap bytea NOT NULL
);
CREATE INDEX delayed_by_due ON {s}delayed (ring, due, id);

CREATE TABLE {s}book (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    begin_page bigint NOT NULL DEFAULT 0,
    end_page bigint NOT NULL DEFAULT 0,
    pages bigint NOT NULL DEFAULT 0 CHECK (pages >= 0),
    messages bigint NOT NULL DEFAULT 0 CHECK (messages >= 0),
    size bigint NOT NULL DEFAULT 0 CHECK (size >= 0),
    -- The ring's order is the order of tickets; the head has the smallest.
    ticket bigint,
    deficit bigint NOT NULL DEFAULT 0,
    -- Mail below the floor is in pages; so is the mail named by `ahead`, at or above it.
    floor bigint NOT NULL DEFAULT 0,
    ahead bytea NOT NULL DEFAULT '',
    wake_at bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin),
    CHECK (begin_page <= end_page),
    CHECK ((ticket IS NOT NULL) = (end_page > begin_page))
) WITH (fillfactor = 80);
CREATE INDEX book_by_ticket ON {s}book (ring, ticket) WHERE ticket IS NOT NULL;

CREATE TABLE {s}page (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    page bigint NOT NULL,
    items integer NOT NULL CHECK (items > 0),
    used integer NOT NULL,
    first_index integer NOT NULL,
    remaining integer NOT NULL CHECK (remaining > 0),
    remaining_size bigint NOT NULL,
    -- Messages that wait for a person.
    kept integer NOT NULL DEFAULT 0,
    first_mail bigint NOT NULL,
    last_mail bigint NOT NULL,
    slices bytea NOT NULL,
    lengths bytea NOT NULL,
    marks bytea NOT NULL DEFAULT '',
    notes bytea NOT NULL DEFAULT '',
    PRIMARY KEY (ring, origin, page),
    CHECK (first_index BETWEEN 0 AND items)
);
CREATE INDEX page_with_kept ON {s}page (ring, origin, page) WHERE kept > 0;

CREATE TABLE {s}aside (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    page bigint NOT NULL,
    item integer NOT NULL,
    id bytea NOT NULL,
    size integer NOT NULL,
    weight bytea,
    weight_limit bytea,
    reason text NOT NULL,
    block bigint,
    at bigint NOT NULL,
    PRIMARY KEY (ring, origin, page, item)
);
CREATE INDEX aside_by_time ON {s}aside (ring, at);

CREATE TABLE {s}pause (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    reason text NOT NULL DEFAULT '',
    who text NOT NULL DEFAULT '',
    at bigint NOT NULL,
    until bigint,
    PRIMARY KEY (ring, origin)
);

CREATE TABLE {s}standing (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    settings jsonb NOT NULL,
    guaranteed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (ring, origin)
);
CREATE INDEX standing_with_least ON {s}standing (ring, origin) WHERE guaranteed;

-- A block: planned (0), settled (1) or released (2).
CREATE TABLE {s}block (
    id bigint PRIMARY KEY DEFAULT nextval('{s}id_seq'),
    ring smallint NOT NULL,
    key text,
    token bytea NOT NULL UNIQUE,
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    by_hand boolean NOT NULL DEFAULT false,
    seconds double precision NOT NULL,
    deadline bigint NOT NULL,
    planned_at bigint NOT NULL,
    ended_at bigint,
    details jsonb NOT NULL,
    CHECK ((state = 0) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX block_live_key ON {s}block (ring, key) WHERE state = 0;
CREATE INDEX block_live ON {s}block (ring, deadline) WHERE state = 0;
CREATE INDEX block_ended ON {s}block (ring, ended_at) WHERE state <> 0;

CREATE TABLE {s}claim (
    block bigint NOT NULL,
    seq integer NOT NULL,
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    by_hand boolean NOT NULL DEFAULT false,
    data bytea NOT NULL,
    PRIMARY KEY (block, seq)
);
CREATE INDEX claim_by_origin ON {s}claim (ring, origin);

CREATE TABLE {s}outcome (
    id bigint PRIMARY KEY DEFAULT nextval('{s}id_seq'),
    block bigint NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX outcome_by_block ON {s}outcome (block, id);

CREATE TABLE {s}event (
    id bigint PRIMARY KEY DEFAULT nextval('{s}id_seq'),
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    block bigint,
    at bigint NOT NULL,
    events integer NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE {s}event ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX event_by_origin ON {s}event (ring, origin, id);
CREATE INDEX event_by_time ON {s}event (ring, at);

CREATE TABLE {s}ledger (
    block bigint PRIMARY KEY,
    ring smallint NOT NULL,
    at bigint NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX ledger_by_time ON {s}ledger (ring, at);

CREATE TABLE {s}sent_key (
    ring smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (ring, key)
);
CREATE INDEX sent_key_by_time ON {s}sent_key (ring, at);

-- Measured use against length, as the sums that a straight line is fitted from.
CREATE TABLE {s}measure (
    ring smallint NOT NULL,
    processor text COLLATE "C" NOT NULL,
    origin text COLLATE "C" NOT NULL,
    data jsonb NOT NULL,
    PRIMARY KEY (ring, processor, origin)
);
