-- The schema: inbox rows, pages cut over them, books of pages, blocks with their claims, and events.
-- Times are microseconds since 1970 of the database's clock, except those of a type for times.
-- Weights are two unsigned 64-bit numbers, big-endian, in 16 bytes.
-- A default is bound to its functions when it is made, so defaults name the schema of their functions: in the search
-- path of a session, another role's nextval(text) may come before PostgreSQL's own.
--
-- Each round of service writes the rows of books and of the ring's state again. While any session holds an old snapshot,
-- the server keeps all their versions, and a lookup by key visits each of them. So the key contains an age, which falls
-- with each write. The newest version comes first in the index, and a lookup ends there.

CREATE SEQUENCE {s}id_seq;

CREATE TABLE {s}ring (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    config jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One row per ring. A process that changes its books locks it.
CREATE TABLE {s}ring_state (
    ring smallint NOT NULL REFERENCES {s}ring (id) ON DELETE CASCADE,
    version bigint NOT NULL DEFAULT 0,
    -- No ready book has a smaller ticket; no inbox row with a smaller id is unknown to the ring.
    ticket_floor bigint NOT NULL DEFAULT 0,
    look_floor bigint NOT NULL DEFAULT 0,
    -- Pairs (transaction id, last id given out before it began): what makes a floor certain.
    marks jsonb NOT NULL DEFAULT '[]',
    lease_token bytea,
    lease_until bigint NOT NULL DEFAULT 0,
    lease_holder text NOT NULL DEFAULT '',
    -- The number of the ring's latest block.
    blocks bigint NOT NULL DEFAULT 0,
    age bigint NOT NULL DEFAULT 0,
    -- No live block has a smaller id: what blocks before it have left is not read again.
    oldest_block bigint NOT NULL DEFAULT 0,
    -- A worker keeps its lease from one service to the next while messages come. A process that finds the ring in use sets
    -- this flag, and the worker gives the lease back. To take the lease clears the flag.
    lease_wanted boolean NOT NULL DEFAULT false,
    -- A walk that met many queues whose messages do not fit looks further, from a place that the ring remembers: a ticket
    -- below which the next look goes on, for regular books and for high ones. By default it begins at the end of the ring.
    look_place bigint NOT NULL DEFAULT 9223372036854775807,
    high_place bigint NOT NULL DEFAULT 9223372036854775807,
    -- Parts of a block that high messages owe to regular ones.
    debt bigint NOT NULL DEFAULT 0,
    -- How many recorded ends are to be applied, so that no holder has to look for any.
    ends integer NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, age)
) WITH (fillfactor = 50);

-- The inbox: what one call sent to one origin, at most a page's worth a row. Rows never change.
-- The transaction id is drawn before the id: ids of later transactions are larger than any
-- that was given out before they began, which is what the marks of the state rest upon.
CREATE TABLE {s}inbox (
    id bigint NOT NULL DEFAULT (
        CASE WHEN pg_catalog.pg_current_xact_id() IS NOT NULL
        THEN pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass) END
    ),
    -- In microseconds since 1970, like the times of all messages.
    sent_at bigint NOT NULL DEFAULT CAST(date_part('epoch', now()) * 1000000 AS bigint),
    size integer NOT NULL,
    items integer NOT NULL DEFAULT 1,
    ring smallint NOT NULL,
    more boolean NOT NULL DEFAULT false,
    origin text COLLATE "C" NOT NULL,
    lengths bytea NOT NULL DEFAULT '',
    attributes bytea NOT NULL DEFAULT '',
    heap bytea NOT NULL,
    -- The server parses the condition of a trigger again in each statement that may fire it, so it is a flag. A sender
    -- that knows that its row refers to no external payload clears the flag; the trigger's function examines other rows.
    refers boolean NOT NULL DEFAULT true
);
-- Payloads do not shrink enough to be worth the processor's time.
ALTER TABLE {s}inbox ALTER COLUMN heap SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX inbox_by_origin ON {s}inbox (ring, origin, id);
CREATE INDEX inbox_by_id ON {s}inbox (ring, id);
-- Without a replica identity, no row could be deleted while a publication contains the table.
ALTER TABLE {s}inbox REPLICA IDENTITY USING INDEX inbox_by_origin;

-- Rows that join their queue later: sent with a due time, or waiting aside for another try.
CREATE TABLE {s}delayed (
    id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass),
    due bigint NOT NULL,
    size integer NOT NULL,
    items integer NOT NULL,
    ring smallint NOT NULL,
    more boolean NOT NULL DEFAULT false,
    origin text COLLATE "C" NOT NULL,
    lengths bytea NOT NULL DEFAULT '',
    attributes bytea NOT NULL DEFAULT '',
    heap bytea NOT NULL,
    -- A message that waits aside for another try keeps its time of sending. Others join their queues as if they were sent
    -- then.
    sent_at bigint
);
CREATE INDEX delayed_by_due ON {s}delayed (ring, due, id);
-- A call with new origins asks whether one has delayed messages.
CREATE INDEX delayed_by_origin ON {s}delayed (ring, origin);

CREATE TABLE {s}book (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    begin_page bigint NOT NULL DEFAULT 0,
    end_page bigint NOT NULL DEFAULT 0,
    pages bigint NOT NULL DEFAULT 0 CHECK (pages >= 0),
    messages bigint NOT NULL DEFAULT 0 CHECK (messages >= 0),
    size bigint NOT NULL DEFAULT 0 CHECK (size >= 0),
    -- The ring's order is the order of tickets, for high books and for regular ones; the head has the smallest.
    ticket bigint,
    deficit bigint NOT NULL DEFAULT 0,
    -- Inbox rows below the floor are in pages; so are those at or above it that `ahead` names.
    floor bigint NOT NULL DEFAULT 0,
    ahead bytea NOT NULL DEFAULT '',
    wake_at bigint NOT NULL DEFAULT 0,
    age bigint NOT NULL DEFAULT 0,
    -- Whether messages of the book have high priority, which its name shows.
    high boolean NOT NULL GENERATED ALWAYS AS (origin < E'\x02') STORED,
    PRIMARY KEY (ring, origin, age),
    CHECK (begin_page <= end_page),
    CHECK ((ticket IS NOT NULL) = (end_page > begin_page))
) WITH (fillfactor = 80);
CREATE INDEX book_by_ticket ON {s}book (ring, high DESC, ticket) WHERE ticket IS NOT NULL;

CREATE TABLE {s}page (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    page bigint NOT NULL,
    items integer NOT NULL CHECK (items > 0),
    used integer NOT NULL,
    first_index integer NOT NULL,
    remaining integer NOT NULL CHECK (remaining > 0),
    remaining_size bigint NOT NULL,
    -- Set-aside messages.
    set_aside integer NOT NULL DEFAULT 0,
    first_row bigint NOT NULL,
    last_row bigint NOT NULL,
    slices bytea NOT NULL,
    lengths bytea NOT NULL,
    marks bytea NOT NULL DEFAULT '',
    notes bytea NOT NULL DEFAULT '',
    PRIMARY KEY (ring, origin, page),
    CHECK (first_index BETWEEN 0 AND items)
);
CREATE INDEX page_with_set_aside ON {s}page (ring, origin, page) WHERE set_aside > 0;

CREATE TABLE {s}set_aside (
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
    -- When it arrived, and the first block that was planned after that.
    arrived_at bigint NOT NULL DEFAULT 0,
    arrived_block bigint,
    PRIMARY KEY (ring, origin, page, item)
);
CREATE INDEX set_aside_by_time ON {s}set_aside (ring, at);
CREATE INDEX set_aside_by_block ON {s}set_aside (ring, block, origin, page, item);
CREATE INDEX set_aside_by_first_block ON {s}set_aside (ring, arrived_block, origin, page, item);

CREATE TABLE {s}pause (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    reason text NOT NULL DEFAULT '',
    who text NOT NULL DEFAULT '',
    at bigint NOT NULL,
    until bigint,
    -- Whether all below an origin is paused with it.
    below boolean NOT NULL DEFAULT false,
    PRIMARY KEY (ring, origin)
);
CREATE INDEX pause_of_groups ON {s}pause (ring) WHERE below;

CREATE TABLE {s}setting (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    settings jsonb NOT NULL,
    guaranteed boolean NOT NULL DEFAULT false,
    -- The most bytes that it may store; in a ring with paths together with all below it.
    quota bigint,
    PRIMARY KEY (ring, origin)
);
CREATE INDEX setting_with_quota ON {s}setting (ring, origin) WHERE quota IS NOT NULL;
CREATE INDEX setting_with_least ON {s}setting (ring, origin) WHERE guaranteed;

-- Sums of the inbox rows of queues with a quota. The difference of the totals of two rows is what the inbox rows between
-- their ids hold, as long as none of these lies in a page. Only the last row of a queue changes.
CREATE TABLE {s}inbox_sum (
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    -- The id below which rows are added up.
    below bigint NOT NULL,
    total bigint NOT NULL,
    -- An id, and a transaction: when all transactions with smaller numbers have ended, all rows below the id are visible.
    certain_below bigint NOT NULL,
    mark bigint NOT NULL,
    PRIMARY KEY (ring, origin, below)
);

-- Balances of budgets over time, of origins and of paths that have one. A missing row is a full bucket.
CREATE TABLE {s}bucket (
    ring smallint NOT NULL,
    path text COLLATE "C" NOT NULL,
    -- Grains of each part, until when it is refilled, the weight that it waits to cover, and since when it is exhausted:
    -- JSON with whole numbers beyond 64 bits. Empty for a full bucket.
    balance text NOT NULL,
    -- No message of the bucket starts before this time. Negative if its settings changed while its queues waited.
    wake_at bigint NOT NULL DEFAULT 0,
    -- How often its settings changed: a balance that was read before a change does not keep the queues waiting.
    terms bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, path)
);
CREATE INDEX bucket_renewed ON {s}bucket (ring) WHERE wake_at < 0;

-- Groups of origins, for rings with paths.
CREATE TABLE {s}origin_group (
    ring smallint NOT NULL,
    -- Ends in a slash, but for the outermost group, which has the empty path.
    path text COLLATE "C" NOT NULL,
    deficit bigint NOT NULL,
    level bigint NOT NULL,
    -- Of the outermost group: who comes first in the next block.
    owed text NOT NULL DEFAULT '',
    PRIMARY KEY (ring, path)
);

-- A block: planned (0), settled (1) or released (2). Blocks of a ring are numbered 1, 2, 3 ...
CREATE TABLE {s}block (
    id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass),
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
    number bigint NOT NULL,
    CHECK ((state = 0) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX block_live_key ON {s}block (ring, key) WHERE state = 0;
CREATE INDEX block_live ON {s}block (ring, id) WHERE state = 0;
CREATE INDEX block_ended ON {s}block (ring, ended_at) WHERE state <> 0;
CREATE UNIQUE INDEX block_by_number ON {s}block (ring, number);

CREATE TABLE {s}claim (
    block bigint NOT NULL,
    seq integer NOT NULL,
    ring smallint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    by_hand boolean NOT NULL DEFAULT false,
    data bytea NOT NULL,
    PRIMARY KEY (block, seq)
);
CREATE INDEX claim_by_origin ON {s}claim (ring, origin, block);

CREATE TABLE {s}outcome (
    id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass),
    block bigint NOT NULL,
    data bytea NOT NULL,
    -- Names the external payloads of messages that the block sends when it ends, as in an inbox row.
    attributes bytea NOT NULL DEFAULT ''
);
CREATE INDEX outcome_by_block ON {s}outcome (block, id);

-- One writer per ring: a process that does not hold the ring records how a block ended, and the process that holds it
-- applies that. The row exists between the two; the claims and reports of its block stay as long. An end that cannot be
-- applied keeps the reason, and its messages stay in flight.
CREATE TABLE {s}ending (
    ring smallint NOT NULL,
    block bigint NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    terms jsonb NOT NULL,
    error text NOT NULL DEFAULT '',
    PRIMARY KEY (ring, block)
);
CREATE UNIQUE INDEX ending_by_number ON {s}ending (ring, number);

CREATE TABLE {s}event (
    id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass),
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

-- What queues paid for their messages, by queue and processor: one row for each save.
CREATE TABLE {s}charge (
    id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass),
    ring smallint NOT NULL,
    block bigint,
    -- The DAG or program that serviced the messages.
    server text NOT NULL DEFAULT '',
    at bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE {s}charge ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX charge_in_order ON {s}charge (ring, id);
CREATE INDEX charge_by_time ON {s}charge (ring, at);

-- Sums of charges by day of UTC since 1970, packed by queue, processor and server. They outlive the rows.
CREATE TABLE {s}usage_day (
    ring smallint NOT NULL,
    day integer NOT NULL,
    -- The last charge that was added.
    last bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (ring, day)
);
ALTER TABLE {s}usage_day ALTER COLUMN data SET STORAGE EXTERNAL;

-- Headers of the bills of closed days of UTC: each day without gaps, and none changes.
CREATE TABLE {s}bill_day (
    ring smallint NOT NULL,
    day integer NOT NULL,
    -- The last charge in the bills of this day; the day before ends before its first one.
    last bigint NOT NULL,
    -- The hash of the header before.
    before bytea NOT NULL,
    root bytea NOT NULL,
    leaves integer NOT NULL,
    PRIMARY KEY (ring, day)
);

-- What the bills of a closed day contain, by tenant, as the canonical JSON that is hashed.
CREATE TABLE {s}bill_leaf (
    ring smallint NOT NULL,
    day integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    place integer NOT NULL,
    salt bytea NOT NULL,
    path bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (ring, day, tenant)
);

-- Two rings may have a block of the same number. What was sent before a block has smaller ids.
CREATE TABLE {s}ledger (
    block bigint NOT NULL,
    ring smallint NOT NULL,
    at bigint NOT NULL,
    data bytea NOT NULL,
    id bigint NOT NULL,
    PRIMARY KEY (ring, block)
);
CREATE INDEX ledger_by_time ON {s}ledger (ring, at);

-- Each origin has its own idempotency keys. Keys of chunks belong to no single origin; theirs is the empty text.
CREATE TABLE {s}sent_key (
    ring smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    at bigint NOT NULL,
    origin text COLLATE "C" NOT NULL,
    PRIMARY KEY (ring, key, origin)
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

-- External payloads, larger than a page: each once by its hash, as long as a message or an upload refers to it.

-- Bytes that arrive or have arrived. The sweep deletes uploads of no blob whose time has passed.
CREATE TABLE {s}upload (
    id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass),
    -- When it is given up; NULL for the upload of a blob.
    until bigint,
    -- The folder of its file; empty if its bytes are in chunks.
    path text NOT NULL DEFAULT ''
);
CREATE INDEX upload_past ON {s}upload (until, id) WHERE until IS NOT NULL;

CREATE TABLE {s}chunk (
    upload bigint NOT NULL,
    seq integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (upload, seq)
);
ALTER TABLE {s}chunk ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE {s}blob (
    hash text COLLATE "C" PRIMARY KEY,
    size bigint NOT NULL CHECK (size > 0),
    upload bigint NOT NULL UNIQUE REFERENCES {s}upload (id),
    at bigint NOT NULL
);

-- References to a blob: by a message, named by its inbox row and its place there; by a report to a block that will send
-- such messages; or until a time by an upload.
-- A deleted message leaves an ended use. By these, the sweep finds unused blobs.
CREATE TABLE {s}blob_use (
    inbox_row bigint NOT NULL,
    place integer NOT NULL,
    hash text COLLATE "C" NOT NULL REFERENCES {s}blob (hash),
    until bigint,
    PRIMARY KEY (inbox_row, place)
);
CREATE INDEX blob_use_by_hash ON {s}blob_use (hash);
CREATE INDEX blob_use_past ON {s}blob_use (until, hash) WHERE until IS NOT NULL;

-- A reference to a missing blob is stored, too. The error appears when the message is processed.
CREATE FUNCTION {s}use_blobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.attributes <> '' AND position('"blobs":{'::bytea IN NEW.attributes) > 0 THEN
        INSERT INTO {s}blob_use (inbox_row, place, hash)
        SELECT NEW.id, used.key::integer, b.hash
        FROM jsonb_each_text(convert_from(NEW.attributes, 'UTF8')::jsonb -> 'blobs') AS used
        JOIN {s}blob b ON b.hash = left(used.value, 64)
        FOR KEY SHARE OF b;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION {s}leave_blobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE inbox_row = OLD.id AND until IS NULL;
    RETURN NULL;
END
$$;

-- Uses follow the inbox rows of any writer. Rows without references pay for a look at their attributes.
CREATE TRIGGER inbox_uses_blobs AFTER INSERT ON {s}inbox FOR EACH ROW WHEN (NEW.refers) EXECUTE FUNCTION {s}use_blobs();
CREATE TRIGGER inbox_leaves_blobs AFTER DELETE ON {s}inbox FOR EACH ROW
    WHEN (OLD.attributes <> '' AND position('"blobs":{'::bytea IN OLD.attributes) > 0) EXECUTE FUNCTION {s}leave_blobs();
CREATE TRIGGER delayed_uses_blobs AFTER INSERT ON {s}delayed FOR EACH ROW
    WHEN (NEW.attributes <> '' AND position('"blobs":{'::bytea IN NEW.attributes) > 0) EXECUTE FUNCTION {s}use_blobs();
CREATE TRIGGER delayed_leaves_blobs AFTER DELETE ON {s}delayed FOR EACH ROW
    WHEN (OLD.attributes <> '' AND position('"blobs":{'::bytea IN OLD.attributes) > 0) EXECUTE FUNCTION {s}leave_blobs();
CREATE TRIGGER outcome_uses_blobs AFTER INSERT ON {s}outcome FOR EACH ROW
    WHEN (NEW.attributes <> '') EXECUTE FUNCTION {s}use_blobs();
CREATE TRIGGER outcome_leaves_blobs AFTER DELETE ON {s}outcome FOR EACH ROW
    WHEN (OLD.attributes <> '') EXECUTE FUNCTION {s}leave_blobs();

-- The keys of books and of the ring's state contain an age, so they keep no second row of the same name away.
-- These triggers do: a row is new, or it is refused. They lock the ring, which every writer of such rows holds already.
-- Without the lock, two transactions could each see no row.

CREATE FUNCTION {s}refuse_second_book() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM {s}ring_state s WHERE s.ring = NEW.ring ORDER BY s.age LIMIT 1 FOR UPDATE;
    IF EXISTS (SELECT FROM {s}book b WHERE b.ring = NEW.ring AND b.origin = NEW.origin) THEN
        RAISE unique_violation USING MESSAGE = 'a second row of one book';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION {s}refuse_second_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM {s}ring r WHERE r.id = NEW.ring FOR UPDATE;
    IF EXISTS (SELECT FROM {s}ring_state s WHERE s.ring = NEW.ring) THEN
        RAISE unique_violation USING MESSAGE = 'a second row of the state of one ring';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER one_row BEFORE INSERT ON {s}book FOR EACH ROW EXECUTE FUNCTION {s}refuse_second_book();
CREATE TRIGGER one_row BEFORE INSERT ON {s}ring_state FOR EACH ROW EXECUTE FUNCTION {s}refuse_second_state();

-- Sending by SQL: functions that any client of the database can call, and grants of roles to send.
--
-- A sender needs no right on a table. The functions `send` and `send_many` run with the rights of their caller and insert
-- into the view `outbox`. Its trigger runs with the rights of its owner, and checks every value as the Python client
-- does. Errors have their own SQLSTATEs, which docs/sending.md lists.

-- Origins and priorities that a role may send with, in one ring.
CREATE TABLE {s}sender (
    role regrole NOT NULL,
    ring smallint NOT NULL REFERENCES {s}ring (id) ON DELETE CASCADE,
    -- Shell patterns as the operator wrote them, and the LIKE pattern of each.
    origins text NOT NULL,
    patterns text[] NOT NULL,
    high boolean NOT NULL DEFAULT true,
    PRIMARY KEY (role, ring)
);

CREATE FUNCTION {s}check_headers(headers jsonb, most integer) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size bigint;
BEGIN
    IF jsonb_typeof(headers) <> 'object' OR EXISTS (
            SELECT FROM jsonb_each(CASE jsonb_typeof(headers) WHEN 'object' THEN headers ELSE '{}' END) h
            WHERE jsonb_typeof(h.value) <> 'string') THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = 'invalid headers: expected a JSON object of text to text';
    END IF;
    SELECT sum(octet_length(h.key) + octet_length(h.value)) INTO size FROM jsonb_each_text(headers) h;
    IF size > most THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = format(
            'headers too long (%s bytes): expected at most %s bytes of names and values', size, most),
            HINT = 'Put longer data into the payload, or raise max_headers of the ring.';
    END IF;
    RETURN headers;
END
$$;

CREATE FUNCTION {s}check_origin(origin text, invisible boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF origin IS NULL OR octet_length(origin) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ100', MESSAGE = format(
            'invalid origin %L (%s bytes): expected 1 to 255 bytes', left(origin, 40), octet_length(origin));
    ELSIF origin ~ E'[\\u0001-\\u001F\\u007F-\\u009F\\u2028\\u2029]' THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ100',
            MESSAGE = 'invalid origin: expected text without control characters';
    ELSIF NOT invisible AND origin ~ (E'[\\u00AD\\u034F\\u061C\\u115F\\u1160\\u17B4\\u17B5\\u180B-\\u180F'
            '\\u200B-\\u200F\\u202A-\\u202E\\u2060-\\u206F\\u2800\\u3164\\uFE00-\\uFE0F\\uFEFF\\uFFA0\\uFFF9-\\uFFFB'
            '\\U0001D173-\\U0001D17A\\U000E0000-\\U000E0FFF]') THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ100',
            MESSAGE = 'invalid origin: a character is invisible or changes the direction of text, so the origin may '
                      'look like another one; expected an origin without such characters',
            HINT = 'To permit them: airflow-mq ring change RING --set invisible_origins=true';
    END IF;
    RETURN origin;
END
$$;

-- Names of queues with stored messages in a range, at most `most`.
CREATE FUNCTION {s}stored_origins(ring_id smallint, low text, below text, most bigint) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    (SELECT b.origin FROM {s}book b
     WHERE b.ring = ring_id AND b.origin >= low AND b.origin < below AND (b.pages > 0 OR b.ticket IS NOT NULL)
     ORDER BY b.origin LIMIT most)
    UNION ALL
    (WITH RECURSIVE walk(origin, place) AS (
         SELECT min(m.origin), 1 FROM {s}inbox m WHERE m.ring = ring_id AND m.origin >= low
         UNION ALL
         SELECT (SELECT min(m.origin) FROM {s}inbox m WHERE m.ring = ring_id AND m.origin > walk.origin), walk.place + 1
         FROM walk
         WHERE walk.origin IS NOT NULL AND walk.origin < below AND walk.place < most
     )
     SELECT walk.origin FROM walk WHERE walk.origin < below)
    UNION ALL
    (WITH RECURSIVE walk(origin, place) AS (
         SELECT min(d.origin), 1 FROM {s}delayed d WHERE d.ring = ring_id AND d.origin >= low
         UNION ALL
         SELECT (SELECT min(d.origin) FROM {s}delayed d WHERE d.ring = ring_id AND d.origin > walk.origin), walk.place + 1
         FROM walk
         WHERE walk.origin IS NOT NULL AND walk.origin < below AND walk.place < most
     )
     SELECT walk.origin FROM walk WHERE walk.origin < below)
$$;

-- Of these origins, those without any stored message.
CREATE FUNCTION {s}new_origins(ring_id smallint, origins text[]) RETURNS SETOF text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT o.origin COLLATE "C" FROM unnest(origins) o(origin)
    WHERE NOT EXISTS (
        SELECT FROM unnest(ARRAY[o.origin, E'\x01' || o.origin]) q(name)
        WHERE EXISTS (SELECT FROM {s}book b
                      WHERE b.ring = ring_id AND b.origin = q.name AND (b.pages > 0 OR b.ticket IS NOT NULL))
           OR EXISTS (SELECT FROM {s}inbox m WHERE m.ring = ring_id AND m.origin = q.name)
           OR EXISTS (SELECT FROM {s}delayed d WHERE d.ring = ring_id AND d.origin = q.name)
    )
    ORDER BY 1
$$;

-- Raise an error if these origins would be too many for the ring or for a group of it. The error of a caller that may
-- read the tables has figures. Those of others have none, because they would reveal how many origins others have.
CREATE FUNCTION {s}check_room(ring_id smallint, origins text[], is_reader boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    config jsonb;
    fresh text[];
    stored bigint;
    most bigint;
    part record;
BEGIN
    IF NOT EXISTS (SELECT FROM {s}new_origins(ring_id, origins)) THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = format(
            'invalid isolation level %L: expected read committed to send from a new origin to a ring with max_origins or '
            'max_origins_per_group', current_setting('transaction_isolation'));
    END IF;
    -- Senders that add queues wait for each other, so that together they keep the limit.
    PERFORM pg_advisory_xact_lock('{s}ring'::regclass::oid::integer, ring_id);
    SELECT r.config INTO config FROM {s}ring r WHERE r.id = ring_id;
    fresh := ARRAY(SELECT {s}new_origins(ring_id, origins));
    most := (config ->> 'max_origins')::bigint;
    IF most IS NOT NULL THEN
        SELECT count(DISTINCT ltrim(o, E'\x01')) INTO stored FROM (
            SELECT {s}stored_origins(ring_id, E'\x01', E'\x02', most + 1) AS o
            UNION ALL SELECT {s}stored_origins(ring_id, E'\x02', repeat(E'\U0010FFFF', 64), most + 1)
        ) s;
        IF cardinality(fresh) > greatest(most - stored, 0) THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ106', MESSAGE = CASE WHEN is_reader THEN format(
                'origin limit reached (max_origins=%s): cannot add origin %L', most,
                left(fresh[greatest(most - stored, 0) + 1], 80))
                ELSE 'origin limit reached: cannot add all origins of this call' END,
                HINT = 'Drain or remove an origin, or raise max_origins. Nothing of this call was stored.';
        END IF;
    END IF;
    most := (config ->> 'max_origins_per_group')::bigint;
    IF most IS NOT NULL THEN
        FOR part IN SELECT split_part(o, '/', 1) AS name, array_agg(o ORDER BY o COLLATE "C") AS members
                    FROM unnest(fresh) o GROUP BY 1 ORDER BY 1 LOOP
            SELECT count(DISTINCT ltrim(o, E'\x01')) INTO stored FROM (
                SELECT {s}stored_origins(ring_id, mark || part.name, mark || part.name || E'\x01', 2) AS o
                FROM unnest(ARRAY['', E'\x01']) mark
                UNION ALL
                SELECT {s}stored_origins(ring_id, mark || part.name || '/', mark || part.name || '0', most + 1)
                FROM unnest(ARRAY['', E'\x01']) mark
            ) s;
            IF cardinality(part.members) > greatest(most - stored, 0) THEN
                RAISE EXCEPTION USING ERRCODE = 'MQ106', MESSAGE = CASE WHEN is_reader THEN format(
                    'origin limit of group %L reached (max_origins_per_group=%s): cannot add origin %L', part.name,
                    most, left(part.members[greatest(most - stored, 0) + 1], 80))
                    ELSE format('origin limit of group %L reached: cannot add all origins of this call', part.name) END,
                    HINT = 'Drain or remove an origin, or raise max_origins_per_group. '
                           'Nothing of this call was stored.';
            END IF;
        END LOOP;
    END IF;
END
$$;

-- Unpack numbers, no two of them equal, like `unpack_numbers` of airflow_mq.engine.store.codec.
CREATE FUNCTION {s}unpacked_numbers(packed bytea) RETURNS SETOF bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    width integer := CASE chr(get_byte(packed, 0)) WHEN 'B' THEN 1 WHEN 'H' THEN 2 WHEN 'I' THEN 4 ELSE 8 END;
    -- A single number lies in the head.
    start integer := CASE chr(get_byte(packed, 0)) WHEN '=' THEN 5 ELSE 13 END;
    number bigint;
BEGIN
    WHILE start + width <= octet_length(packed) LOOP
        number := 0;
        FOR place IN REVERSE width - 1 .. 0 LOOP
            number := (number << 8) + get_byte(packed, start + place);
        END LOOP;
        RETURN NEXT number;
        start := start + width;
    END LOOP;
END
$$;

-- How full the queues and groups with a quota are to which messages of these books and sizes go. Bytes in pages are those
-- that the holder of the ring saved; of inbox rows from the floor on, those are added up that lie in no page. Between two
-- sums beyond all rows in pages, none is read. Each of its statements fetches by key, and to plan them for each call takes
-- a third of a check.
CREATE FUNCTION {s}fullness(ring_id smallint, names text[], sizes bigint[])
RETURNS TABLE (path text, quota bigint, stored bigint, coming bigint, uncut bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    config jsonb;
    books text[];
    name text;
    size numeric;
    rows bigint;
    floor bigint;
    ahead bytea;
    first record;
    last record;
BEGIN
    SELECT r.config INTO config FROM {s}ring r WHERE r.id = ring_id;
    FOR path, quota, coming IN
        SELECT p.path, t.quota, sum(c.size)::bigint FROM unnest(names, sizes) c(name, size)
        -- The name with all above it. Row by row: a call of many long names has millions of them.
        CROSS JOIN LATERAL (SELECT string_agg(part, '/') OVER (ROWS UNBOUNDED PRECEDING) AS path FROM string_to_table(
            ltrim(c.name, E'\x01'), CASE WHEN (config ->> 'paths')::boolean THEN '/' ELSE '' END) part) p
        CROSS JOIN LATERAL (SELECT t.quota FROM {s}setting t
                            WHERE t.ring = ring_id AND t.origin = p.path AND t.quota IS NOT NULL OFFSET 0) t
        GROUP BY p.path, t.quota ORDER BY p.path COLLATE "C"
    LOOP
        books := ARRAY[path];
        IF (config ->> 'high')::boolean THEN
            books := books || (E'\x01' || path);
        END IF;
        IF (config ->> 'paths')::boolean THEN
            books := books || ARRAY(
                SELECT DISTINCT s FROM unnest(books) b
                CROSS JOIN LATERAL {s}stored_origins(ring_id, b || '/', b || '0', 2147483647) s);
        END IF;
        stored := 0;
        uncut := 0;
        FOREACH name IN ARRAY books LOOP
            SELECT b.size, b.floor, b.ahead INTO size, floor, ahead FROM {s}book b
            WHERE b.ring = ring_id AND b.origin = name ORDER BY b.age LIMIT 1;
            floor := coalesce(floor, 0);
            SELECT s.below, s.total INTO first FROM {s}inbox_sum s
            WHERE s.ring = ring_id AND s.origin = name AND s.below >= greatest(floor, CASE WHEN octet_length(ahead) > 0
                THEN (SELECT max(cut) + 1 FROM {s}unpacked_numbers(ahead) cut) END)
            ORDER BY s.below LIMIT 1;
            SELECT s.below, s.total INTO last FROM {s}inbox_sum s
            WHERE s.ring = ring_id AND s.origin = name AND first.below IS NOT NULL ORDER BY s.below DESC LIMIT 1;
            stored := stored + coalesce(size, 0) + coalesce(last.total - first.total, 0);
            SELECT coalesce(sum(r.size + CASE WHEN position('"headers":'::bytea IN r.attributes) > 0
                                THEN octet_length(r.attributes) ELSE 0 END), 0), count(*) FILTER (WHERE r.waits)
            INTO size, rows FROM (
                (SELECT m.size, m.attributes, true AS waits FROM {s}inbox m
                 WHERE m.ring = ring_id AND (m.origin, m.id) >= (name, floor)
                   AND (m.origin, m.id) < (name, coalesce(first.below, 9223372036854775807))
                 ORDER BY m.origin, m.id)
                UNION ALL
                SELECT d.size, d.attributes, false FROM {s}delayed d WHERE d.ring = ring_id AND d.origin = name
                UNION ALL
                (SELECT m.size, m.attributes, true FROM {s}inbox m
                 WHERE m.ring = ring_id AND (m.origin, m.id) >= (name, last.below)
                   AND (m.origin, m.id) < (name, 9223372036854775807)
                 ORDER BY m.origin, m.id)
            ) r;
            stored := stored + size;
            uncut := uncut + rows;
            IF octet_length(ahead) > 0 THEN
                SELECT coalesce(sum(m.size + CASE WHEN position('"headers":'::bytea IN m.attributes) > 0
                                    THEN octet_length(m.attributes) ELSE 0 END), 0)
                INTO size FROM {s}unpacked_numbers(ahead) cut
                JOIN {s}inbox m ON m.ring = ring_id AND m.origin = name AND m.id = cut AND m.id >= floor;
                stored := stored - size;
            END IF;
        END LOOP;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Write sums of the inbox rows of these books, one for each `step` rows, up to the id below which all rows are visible.
-- Who finds another transaction at it leaves it at that. A transaction that has a number before it reads the last id
-- can make no mark, and one whose snapshot is fixed would not see the sums of others.
CREATE FUNCTION {s}add_up(ring_id smallint, names text[], step integer) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    name text;
    last_id bigint;
    own bigint;
    oldest bigint;
    floor bigint;
    last record;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL OR current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    last_id := coalesce(pg_sequence_last_value('{s}id_seq'::regclass), 0);
    own := pg_current_xact_id()::text::bigint;
    FOREACH name IN ARRAY names LOOP
        CONTINUE WHEN NOT pg_try_advisory_xact_lock('{s}inbox_sum'::regclass::oid::integer, hashtext(ring_id || name));
        oldest := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
        SELECT b.floor INTO floor FROM {s}book b WHERE b.ring = ring_id AND b.origin = name ORDER BY b.age LIMIT 1;
        floor := coalesce(floor, 0);
        SELECT s.* INTO last FROM {s}inbox_sum s
        WHERE s.ring = ring_id AND s.origin = name ORDER BY s.below DESC LIMIT 1;
        IF last.below IS NULL THEN
            INSERT INTO {s}inbox_sum VALUES (ring_id, name, floor, 0, last_id + 1, own);
            CONTINUE;
        END IF;
        IF last.mark <= oldest THEN
            INSERT INTO {s}inbox_sum
            SELECT ring_id, name, r.id + 1, last.total + r.total, 0, 0 FROM (
                SELECT m.id, row_number() OVER w AS place,
                       sum(m.size + CASE WHEN position('"headers":'::bytea IN m.attributes) > 0
                               THEN octet_length(m.attributes) ELSE 0 END) OVER w AS total FROM {s}inbox m
                WHERE m.ring = ring_id AND (m.origin, m.id) >= (name, last.below)
                  AND (m.origin, m.id) < (name, last.certain_below)
                WINDOW w AS (ORDER BY m.origin, m.id)
            ) r WHERE r.place % step = 0;
        -- After a restore into another cluster, transaction numbers restart; larger marks are void.
        ELSIF last.mark <= own THEN
            CONTINUE;
        END IF;
        UPDATE {s}inbox_sum s SET certain_below = last_id + 1, mark = own
        WHERE s.ring = ring_id AND s.origin = name AND s.below = (
            SELECT max(l.below) FROM {s}inbox_sum l WHERE l.ring = ring_id AND l.origin = name);
        DELETE FROM {s}inbox_sum s WHERE s.ring = ring_id AND s.origin = name AND s.below < least(floor, last.below);
    END LOOP;
END
$$;

-- Raise an error if these messages would be too many for a queue or a group. In a ring with paths, what must drain would
-- reveal how much others have stored: only callers that may read the tables see it.
CREATE FUNCTION {s}check_quota(ring_id smallint, names text[], sizes bigint[], is_reader boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f record;
BEGIN
    SELECT q.*, max(q.uncut) OVER () AS most_uncut, coalesce((r.config ->> 'paths')::boolean, false) AS has_paths INTO f
    FROM {s}ring r, {s}fullness(ring_id, names, sizes) q WHERE r.id = ring_id
    ORDER BY q.stored + q.coming - q.quota DESC, q.path LIMIT 1;
    IF f.most_uncut > 128 THEN
        PERFORM {s}add_up(ring_id, names, 64);
    END IF;
    IF f.coming > 0 AND f.stored + f.coming > f.quota THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ107', MESSAGE = CASE WHEN f.coming > f.quota THEN format(
            'call of %s bytes too large for the quota of %L: expected at most %s bytes', f.coming, f.path, f.quota)
            WHEN is_reader THEN format('queue %L is full: %s bytes must drain before this call of %s bytes (quota=%s, '
                'stored=%s)', f.path, f.stored + f.coming - f.quota, f.coming, f.quota, f.stored)
            WHEN f.has_paths THEN format('queue %L is full: it has no room for this call of %s bytes', f.path, f.coming)
            ELSE format('queue %L is full: %s bytes must drain before this call of %s bytes', f.path,
                f.stored + f.coming - f.quota, f.coming) END,
            HINT = CASE WHEN f.coming > f.quota THEN 'Send less' ELSE 'Retry later' END || ', or raise the quota.';
    END IF;
    -- Senders that skip checks compare ids with the pages that their queues have room for: a row of several pages draws
    -- several ids.
    PERFORM nextval('{s}id_seq'::regclass) FROM {s}ring r, generate_series(1, (
        SELECT sum(s)::bigint FROM unnest(sizes) s) / coalesce((r.config ->> 'heap_size')::integer, 65536))
    WHERE r.id = ring_id AND f.quota IS NOT NULL;
END
$$;

-- Pack numbers like `pack_numbers` of airflow_mq.engine.store.codec, four bytes each, the lowest first.
CREATE FUNCTION {s}packed_lengths(lengths integer[]) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN cardinality(lengths) = 1 THEN ''::bytea ELSE
        'I'::bytea || substr(n, 4, 1) || substr(n, 3, 1) || substr(n, 2, 1) || substr(n, 1, 1)
        || E'\\x0000000000000000'::bytea
        || (SELECT string_agg(substr(b, 4, 1) || substr(b, 3, 1) || substr(b, 2, 1) || substr(b, 1, 1), ''::bytea
                              ORDER BY place)
            FROM (SELECT int4send(length) AS b, place FROM unnest(lengths) WITH ORDINALITY u(length, place)) w)
    END
    FROM int4send(cardinality(lengths)) n
$$;

-- Enqueue the messages of one call of a role. Return how many were stored.
CREATE FUNCTION {s}store_messages(
    caller name,
    ring text,
    origins text[],
    payloads bytea[],
    keys text[],
    headers jsonb[],
    weight numeric[],
    not_before timestamptz,
    expires timestamptz,
    priority text
) RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    -- 5 bytes of header for each message in a page.
    header constant integer := 5;
    ring_id smallint;
    config jsonb;
    heap integer;
    total integer := coalesce(cardinality(origins), 0);
    is_writer boolean := has_table_privilege(caller, '{s}inbox', 'INSERT');
    patterns text[];
    refused text;
    shared jsonb := '{}';
    own jsonb;
    mark text := CASE store_messages.priority WHEN 'high' THEN E'\x01' ELSE '' END;
    moment bigint;
    limits_bytes boolean;
    given record;
    stored bytea;
    size integer;
    -- Of each message: whether its key was used before, the number of its inbox row, and its attributes.
    skipped boolean[] := array_fill(false, ARRAY[total]);
    parts integer[] := array_fill(0, ARRAY[total]);
    attributes text[] := array_fill(''::text, ARRAY[total]);
    -- The open inbox row: its number, origin, attributes and bytes.
    part integer;
    part_origin text;
    part_attributes text;
    part_size integer;
BEGIN
    SELECT r.id, r.config INTO ring_id, config FROM {s}ring r WHERE r.name = store_messages.ring;
    -- Who may send. A role that may write the table itself needs no grant. Without a grant, a ring looks like none.
    IF NOT is_writer THEN
        SELECT array_agg(p) INTO patterns FROM {s}sender g JOIN pg_roles r ON r.oid = g.role, unnest(g.patterns) p
        WHERE g.ring = ring_id AND pg_has_role(caller, g.role, 'USAGE')
          AND (g.high OR store_messages.priority IS DISTINCT FROM 'high');
        -- Longer ones are invalid; no pattern meets them, because matching takes long.
        SELECT o INTO refused FROM unnest(origins) o
        WHERE patterns IS NULL OR o IS NOT NULL AND octet_length(o) <= 255 AND NOT o LIKE ANY (patterns) LIMIT 1;
        IF FOUND OR patterns IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format(
                'role %I may not send with origin %L and priority %s to ring %L: expected a grant that covers them',
                caller, left(refused, 80), left(store_messages.priority, 40), left(store_messages.ring, 80)),
                HINT = format('To grant it: airflow-mq store grant sender %I --origins PATTERN', caller);
        END IF;
    ELSIF ring_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ104', MESSAGE = format('unknown ring %L', left(store_messages.ring, 80)),
            HINT = 'Create it: airflow-mq ring create NAME';
    END IF;
    heap := coalesce((config ->> 'heap_size')::integer, 65536);
    IF store_messages.priority IS NULL OR store_messages.priority NOT IN ('regular', 'high') THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = format(
            'invalid priority %L: expected regular or high', left(store_messages.priority, 40));
    END IF;
    IF coalesce(cardinality(payloads), 0) <> total OR cardinality(keys) <> total OR cardinality(headers) <> total
            OR array_ndims(origins) > 1 OR array_ndims(payloads) > 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = format(
            'arrays of different lengths (%s origins, %s payloads, %s keys, %s headers): expected one value for each '
            'message', total, cardinality(payloads), cardinality(keys), cardinality(headers));
    END IF;

    -- Common attributes of all messages.
    IF weight IS NOT NULL THEN
        IF cardinality(weight) <> 2 OR array_ndims(weight) <> 1 OR array_lower(weight, 1) <> 1 OR EXISTS (
                SELECT FROM unnest(weight) w
                WHERE w IS NULL OR w <> trunc(w) OR w < 0 OR w > 18446744073709551615 OR w = 'NaN') THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = format(
                'invalid weight %s: expected two whole numbers, time and size, from 0 to 18446744073709551615',
                left(weight::text, 80));
        END IF;
        shared := jsonb_build_object('weight', jsonb_build_array(trunc(weight[1]), trunc(weight[2])));
    END IF;
    IF expires IS NOT NULL THEN
        IF expires NOT BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 00:00+00' THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = 'invalid expires: expected a time before the year 9999';
        END IF;
        -- 0 stands for no expiry.
        shared := shared || jsonb_build_object('expires', coalesce(
            nullif(trunc(extract(epoch FROM expires) * 1000000)::bigint, 0), 1));
    END IF;
    IF not_before NOT BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 00:00+00' THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = 'invalid not_before: expected a time before the year 9999';
    ELSIF expires <= not_before THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = 'invalid expires: expected a time after not_before';
    END IF;

    -- Check each message, and assign it to an inbox row: a page's worth of messages of one origin with the same
    -- attributes. A message with a key has a row of its own.
    FOR given IN
        SELECT m.origin, m.payload, m.key, m.headers, m.place::integer
        FROM unnest(origins, payloads, keys, headers) WITH ORDINALITY m(origin, payload, key, headers, place)
        ORDER BY m.origin COLLATE "C", m.place
    LOOP
        IF part_origin IS DISTINCT FROM given.origin OR given.origin IS NULL THEN
            PERFORM {s}check_origin(given.origin, coalesce((config ->> 'invisible_origins')::boolean, false));
            part_origin := given.origin;
            part := NULL;
        END IF;
        size := octet_length(given.payload);
        IF size IS NULL OR size = 0 THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ101', MESSAGE = 'empty message: expected at least one byte';
        ELSIF size > heap - header THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ102', MESSAGE = format(
                'message too long (%s bytes): expected at most %s bytes in this ring', size, heap - header),
                HINT = 'Store it as an external payload, or raise heap_size of the ring.';
        END IF;
        own := shared;
        IF given.headers IS NOT NULL AND given.headers <> '{}' THEN
            own := own || jsonb_build_object('headers', {s}check_headers(
                given.headers, coalesce((config ->> 'max_headers')::integer, 16384)));
        END IF;
        IF own <> '{}' THEN
            attributes[given.place] := jsonb_build_object('all', own)::text;
        END IF;
        IF given.key IS NOT NULL THEN
            IF octet_length(given.key) NOT BETWEEN 1 AND 1000 THEN
                RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = format(
                    'invalid key %L (%s bytes): expected 1 to 1000 bytes, or NULL for no key', left(given.key, 40),
                    octet_length(given.key));
            END IF;
            parts[given.place] := -given.place;
            part := NULL;
            CONTINUE;
        END IF;
        size := size + header;
        IF part IS NULL OR part_size + size > heap OR part_attributes <> attributes[given.place] THEN
            part := given.place;
            part_attributes := attributes[given.place];
            part_size := 0;
        END IF;
        part_size := part_size + size;
        parts[given.place] := part;
    END LOOP;

    -- A transaction that has claimed keys cannot write sums for quotas. A call of no bytes fits.
    limits_bytes := EXISTS (SELECT FROM {s}setting t WHERE t.ring = ring_id AND t.quota IS NOT NULL);
    IF limits_bytes AND keys IS NOT NULL THEN
        PERFORM {s}check_quota(ring_id, array_agg(mark || o), array_agg(0::bigint), is_writer)
        FROM (SELECT DISTINCT o FROM unnest(origins) o) d;
    END IF;

    -- Keys, in an order that is the same for all senders.
    moment := trunc(extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    FOR given IN
        SELECT k.key, k.origin, k.place,
               sha256(convert_to(k.origin, 'UTF8') || E'\\x00'::bytea || k.payload) AS digest
        FROM unnest(origins, payloads, keys) WITH ORDINALITY k(origin, payload, key, place)
        WHERE k.key IS NOT NULL
        ORDER BY k.key COLLATE "C", k.origin COLLATE "C", k.place
    LOOP
        INSERT INTO {s}sent_key AS k (ring, key, origin, digest, at)
        VALUES (ring_id, given.key, given.origin, given.digest, moment)
        ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at
        WHERE k.at <= moment - trunc(coalesce((config ->> 'key_window')::numeric, 86400) * 1000000)::bigint;
        CONTINUE WHEN FOUND;
        SELECT k.digest INTO stored FROM {s}sent_key k
        WHERE k.ring = ring_id AND k.key = given.key AND k.origin = given.origin;
        IF stored <> given.digest THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ105', MESSAGE = format(
                'idempotency key %L of origin %L was used for another message: expected one message for each key of '
                'an origin', left(given.key, 80), left(given.origin, 80)),
                HINT = 'Send another message with another key. Nothing of this call was stored.';
        END IF;
        skipped[given.place] := true;
    END LOOP;

    IF config ->> 'max_origins' IS NOT NULL OR config ->> 'max_origins_per_group' IS NOT NULL THEN
        PERFORM {s}check_room(ring_id, ARRAY(
            SELECT DISTINCT m.origin FROM unnest(origins, skipped) m(origin, is_skipped) WHERE NOT m.is_skipped),
            is_writer);
    END IF;

    IF limits_bytes THEN
        PERFORM {s}check_quota(ring_id, array_agg(m.name), array_agg(m.size), is_writer) FROM (
            -- Messages of one inbox row share its attributes; a delayed row has one message.
            SELECT mark || u.origin AS name, sum(octet_length(u.payload) + CASE
                       WHEN (not_before IS NOT NULL OR abs(u.part) = u.place)
                            AND position('"headers":' IN u.attributes) > 0
                       THEN octet_length(u.attributes) ELSE 0 END)::bigint AS size
            FROM unnest(origins, payloads, skipped, parts, attributes) WITH ORDINALITY
                u(origin, payload, is_skipped, part, attributes, place)
            WHERE NOT u.is_skipped GROUP BY 1
        ) m;
    END IF;

    -- The transaction id is drawn before the ids of rows, as by every sender.
    PERFORM pg_current_xact_id();
    IF not_before IS NULL THEN
        WITH packed AS (
            SELECT m.part, min(m.place) AS first, min(m.origin) AS origin, min(m.attributes) AS attributes,
                   array_agg(octet_length(m.payload) ORDER BY m.place) AS lengths,
                   string_agg(m.payload, ''::bytea ORDER BY m.place) AS heap
            FROM unnest(origins, payloads, parts, attributes, skipped) WITH ORDINALITY
                m(origin, payload, part, attributes, is_skipped, place)
            WHERE NOT m.is_skipped GROUP BY m.part
        )
        INSERT INTO {s}inbox (ring, size, items, more, origin, lengths, attributes, heap)
        SELECT ring_id, octet_length(p.heap), cardinality(p.lengths),
               p.part > 0 AND p.first < max(p.first) FILTER (WHERE p.part > 0) OVER (PARTITION BY p.origin),
               mark || p.origin, {s}packed_lengths(p.lengths), convert_to(p.attributes, 'UTF8'), p.heap
        FROM packed p ORDER BY p.first;
    ELSE
        INSERT INTO {s}delayed (due, ring, size, items, origin, attributes, heap)
        SELECT trunc(extract(epoch FROM not_before) * 1000000)::bigint, ring_id, octet_length(m.payload), 1,
               mark || m.origin, convert_to(m.attributes, 'UTF8'), m.payload
        FROM unnest(origins, payloads, attributes, skipped) WITH ORDINALITY
            m(origin, payload, attributes, is_skipped, place)
        WHERE NOT m.is_skipped ORDER BY m.place;
    END IF;
    IF mark <> '' THEN
        UPDATE {s}ring r SET config = r.config || '{"high": true}'
        WHERE r.id = ring_id AND NOT coalesce((r.config ->> 'high')::boolean, false);
    END IF;
    RETURN (SELECT count(*) FROM unnest(skipped) s WHERE NOT s);
END
$$;

-- What senders insert into. They may not set `caller`, so its default is the role whose code sends: also in an index, a
-- trigger or a function that PostgreSQL runs as its owner in the session of another role.
CREATE VIEW {s}outbox AS
SELECT NULL::name AS caller, NULL::text AS ring, NULL::text[] AS origins, NULL::bytea[] AS payloads, NULL::text[] AS keys,
       NULL::jsonb[] AS headers, NULL::numeric[] AS weight, NULL::timestamptz AS not_before, NULL::timestamptz AS expires,
       NULL::text AS priority, NULL::integer AS stored
WHERE false;
ALTER VIEW {s}outbox ALTER COLUMN caller SET DEFAULT current_user;

CREATE FUNCTION {s}accept() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.stored := {s}store_messages(NEW.caller, NEW.ring, NEW.origins, NEW.payloads, NEW.keys, NEW.headers, NEW.weight,
                                    NEW.not_before, NEW.expires, NEW.priority);
    RETURN NEW;
END
$$;
CREATE TRIGGER accept INSTEAD OF INSERT ON {s}outbox FOR EACH ROW EXECUTE FUNCTION {s}accept();

-- Enqueue many messages, in order. Return how many were stored: messages whose keys were used before are not.
CREATE FUNCTION {s}send_many(
    ring text,
    origins text[],
    payloads bytea[],
    keys text[] DEFAULT NULL,
    headers jsonb[] DEFAULT NULL,
    weight numeric[] DEFAULT NULL,
    not_before timestamptz DEFAULT NULL,
    expires timestamptz DEFAULT NULL,
    priority text DEFAULT 'regular'
) RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    count integer;
BEGIN
    INSERT INTO {s}outbox AS o (ring, origins, payloads, keys, headers, weight, not_before, expires, priority)
    VALUES (ring, origins, payloads, keys, headers, weight, not_before, expires, priority)
    RETURNING o.stored INTO count;
    -- No trigger of a view runs as a replica, for example in a trigger on a table that a subscription writes.
    IF count IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'nothing was stored: session_replication_role is not origin',
            HINT = 'Set it to origin, for example with ALTER FUNCTION of the trigger that sends.';
    END IF;
    RETURN count;
END
$$;

-- Enqueue one message. Return 1, or 0 if its key was used before.
CREATE FUNCTION {s}send(
    ring text,
    origin text,
    payload bytea,
    key text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    weight numeric[] DEFAULT NULL,
    not_before timestamptz DEFAULT NULL,
    expires timestamptz DEFAULT NULL,
    priority text DEFAULT 'regular'
) RETURNS integer LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT {s}send_many(
        ring, ARRAY[origin], ARRAY[payload], CASE WHEN key IS NOT NULL THEN ARRAY[key] END,
        CASE WHEN headers IS NOT NULL THEN ARRAY[headers] END, weight, not_before, expires, priority)
$$;

-- Every function of the schema.
REVOKE ALL ON FUNCTION {s}send, {s}send_many, {s}accept, {s}store_messages, {s}check_headers, {s}check_origin,
    {s}check_room, {s}check_quota, {s}add_up, {s}fullness, {s}new_origins, {s}stored_origins, {s}unpacked_numbers, {s}packed_lengths, {s}use_blobs, {s}leave_blobs, {s}refuse_second_book,
    {s}refuse_second_state FROM PUBLIC;
