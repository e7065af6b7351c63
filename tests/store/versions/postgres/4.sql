-- facts: {"expected": ["acme 0", "acme 1", "acme 2", "acme 3", "acme 4", "acme 5", "globex 0", "globex 1", "globex 2", "an order", "another order", "paused", "delayed", "high"], "set aside": ["heavy"], "lease": null, "block": "086b2c20caf3a6c2fcbf7a6a23f644e8", "large": "largelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelarge", "groups": ["grouped", "grouped"], "at": 1795401009351616}
-- senders: {"plain": ["INSERT INTO \"airflow_mq\".mail (size, ring, origin, heap) VALUES (12, 1, 'acme', '\\x73656e7420706c61696e6c79'::bytea)", "SELECT pg_notify('airflow_mq.airflow_mq.1', '')"], "keyed": ["BEGIN", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", "INSERT INTO \"airflow_mq\".sent_key AS k (ring, key, digest, at) VALUES (1, 'key', '\\x83cc0c44fee675c7cfcb9e6e1d1ab168b504cceafc10aec1a1c337630537d2ed'::bytea, 1795401011578816)\nON CONFLICT (ring, key) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= 1795401011578816 - 1000000000000", "COMMIT"], "many": ["INSERT INTO \"airflow_mq\".mail (ring, size, items, more, origin, lengths, attributes, heap)\nSELECT 1, w.size, w.items, w.more, w.origin, w.lengths, w.attributes, w.heap\nFROM unnest(\n    '{36}'::int2[]::int[], '{2}'::int2[]::int[], '{f}'::bool[]::boolean[], '{acme}'::text[],\n     E'{\"\\\\\\\\x3d020000001200000000000000\"}'::bytea[]::bytea[],  E'{\"\\\\\\\\x\"}'::bytea[]::bytea[],  E'{\"\\\\\\\\x73656e742077697468206f7468657273203173656e742077697468206f74686572732032\"}'::bytea[]::bytea[]\n) WITH ORDINALITY AS w(size, items, more, origin, lengths, attributes, heap, place)\nORDER BY w.place"]}


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE SCHEMA airflow_mq;

CREATE FUNCTION airflow_mq.leave_blobs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE "airflow_mq".blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
    RETURN NULL;
END
$$;

CREATE FUNCTION airflow_mq.use_blobs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO "airflow_mq".blob_use (mail, place, hash)
    SELECT NEW.id, said.key::integer, b.hash
    FROM jsonb_each_text(convert_from(NEW.attributes, 'UTF8')::jsonb -> 'blobs') AS said
    JOIN "airflow_mq".blob b ON b.hash = left(said.value, 64)
    FOR KEY SHARE OF b;
    RETURN NULL;
END
$$;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE airflow_mq.aside (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    page bigint NOT NULL,
    item integer NOT NULL,
    id bytea NOT NULL,
    size integer NOT NULL,
    weight bytea,
    weight_limit bytea,
    reason text NOT NULL,
    block bigint,
    at bigint NOT NULL,
    arrived_at bigint DEFAULT 0 NOT NULL,
    arrived_block bigint
);

CREATE TABLE airflow_mq.blob (
    hash text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    upload bigint NOT NULL,
    at bigint NOT NULL,
    CONSTRAINT blob_size_check CHECK ((size > 0))
);

CREATE TABLE airflow_mq.blob_use (
    mail bigint NOT NULL,
    place integer NOT NULL,
    hash text NOT NULL COLLATE pg_catalog."C",
    until bigint
);

CREATE SEQUENCE airflow_mq.id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE airflow_mq.block (
    id bigint DEFAULT nextval('airflow_mq.id_seq'::regclass) NOT NULL,
    ring smallint NOT NULL,
    key text,
    token bytea NOT NULL,
    state smallint DEFAULT 0 NOT NULL,
    by_hand boolean DEFAULT false NOT NULL,
    seconds double precision NOT NULL,
    deadline bigint NOT NULL,
    planned_at bigint NOT NULL,
    ended_at bigint,
    details jsonb NOT NULL,
    CONSTRAINT block_check CHECK (((state = 0) = (ended_at IS NULL))),
    CONSTRAINT block_state_check CHECK (((state >= 0) AND (state <= 2)))
);

CREATE TABLE airflow_mq.book (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    begin_page bigint DEFAULT 0 NOT NULL,
    end_page bigint DEFAULT 0 NOT NULL,
    pages bigint DEFAULT 0 NOT NULL,
    messages bigint DEFAULT 0 NOT NULL,
    size bigint DEFAULT 0 NOT NULL,
    ticket bigint,
    deficit bigint DEFAULT 0 NOT NULL,
    floor bigint DEFAULT 0 NOT NULL,
    ahead bytea DEFAULT '\x'::bytea NOT NULL,
    wake_at bigint DEFAULT 0 NOT NULL,
    CONSTRAINT book_check CHECK ((begin_page <= end_page)),
    CONSTRAINT book_check1 CHECK (((ticket IS NOT NULL) = (end_page > begin_page))),
    CONSTRAINT book_messages_check CHECK ((messages >= 0)),
    CONSTRAINT book_pages_check CHECK ((pages >= 0)),
    CONSTRAINT book_size_check CHECK ((size >= 0))
)
WITH (fillfactor='80');

CREATE TABLE airflow_mq.branch (
    ring smallint NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    deficit bigint NOT NULL,
    level bigint NOT NULL,
    owed text DEFAULT ''::text NOT NULL
);

CREATE TABLE airflow_mq.chunk (
    upload bigint NOT NULL,
    seq integer NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY airflow_mq.chunk ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE airflow_mq.claim (
    block bigint NOT NULL,
    seq integer NOT NULL,
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    by_hand boolean DEFAULT false NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE airflow_mq.delayed (
    id bigint DEFAULT nextval('airflow_mq.id_seq'::regclass) NOT NULL,
    due bigint NOT NULL,
    size integer NOT NULL,
    items integer NOT NULL,
    ring smallint NOT NULL,
    more boolean DEFAULT false NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    lengths bytea DEFAULT '\x'::bytea NOT NULL,
    attributes bytea DEFAULT '\x'::bytea NOT NULL,
    heap bytea NOT NULL
);

CREATE TABLE airflow_mq.event (
    id bigint DEFAULT nextval('airflow_mq.id_seq'::regclass) NOT NULL,
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    block bigint,
    at bigint NOT NULL,
    events integer NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY airflow_mq.event ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE airflow_mq.ledger (
    block bigint NOT NULL,
    ring smallint NOT NULL,
    at bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE airflow_mq.mail (
    id bigint DEFAULT 
CASE
    WHEN (pg_current_xact_id() IS NOT NULL) THEN nextval('airflow_mq.id_seq'::regclass)
    ELSE NULL::bigint
END NOT NULL,
    sent_at timestamp with time zone DEFAULT now() NOT NULL,
    size integer NOT NULL,
    items integer DEFAULT 1 NOT NULL,
    ring smallint NOT NULL,
    more boolean DEFAULT false NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    lengths bytea DEFAULT '\x'::bytea NOT NULL,
    attributes bytea DEFAULT '\x'::bytea NOT NULL,
    heap bytea NOT NULL
);
ALTER TABLE ONLY airflow_mq.mail ALTER COLUMN heap SET STORAGE EXTERNAL;

CREATE TABLE airflow_mq.measure (
    ring smallint NOT NULL,
    processor text NOT NULL COLLATE pg_catalog."C",
    origin text NOT NULL COLLATE pg_catalog."C",
    data jsonb NOT NULL
);

CREATE TABLE airflow_mq.migration (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE airflow_mq.outcome (
    id bigint DEFAULT nextval('airflow_mq.id_seq'::regclass) NOT NULL,
    block bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE airflow_mq.page (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    page bigint NOT NULL,
    items integer NOT NULL,
    used integer NOT NULL,
    first_index integer NOT NULL,
    remaining integer NOT NULL,
    remaining_size bigint NOT NULL,
    kept integer DEFAULT 0 NOT NULL,
    first_mail bigint NOT NULL,
    last_mail bigint NOT NULL,
    slices bytea NOT NULL,
    lengths bytea NOT NULL,
    marks bytea DEFAULT '\x'::bytea NOT NULL,
    notes bytea DEFAULT '\x'::bytea NOT NULL,
    CONSTRAINT page_check CHECK (((first_index >= 0) AND (first_index <= items))),
    CONSTRAINT page_items_check CHECK ((items > 0)),
    CONSTRAINT page_remaining_check CHECK ((remaining > 0))
);

CREATE TABLE airflow_mq.pause (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    reason text DEFAULT ''::text NOT NULL,
    who text DEFAULT ''::text NOT NULL,
    at bigint NOT NULL,
    until bigint,
    below boolean DEFAULT false NOT NULL
);

CREATE TABLE airflow_mq.ring (
    id smallint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    config jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE airflow_mq.ring ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME airflow_mq.ring_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE airflow_mq.sent_key (
    ring smallint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    digest bytea NOT NULL,
    at bigint NOT NULL
);

CREATE TABLE airflow_mq.standing (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    settings jsonb NOT NULL,
    guaranteed boolean DEFAULT false NOT NULL
);

CREATE TABLE airflow_mq.state (
    ring smallint NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    ticket_floor bigint DEFAULT 0 NOT NULL,
    look_floor bigint DEFAULT 0 NOT NULL,
    marks jsonb DEFAULT '[]'::jsonb NOT NULL,
    lease_token bytea,
    lease_until bigint DEFAULT 0 NOT NULL,
    lease_holder text DEFAULT ''::text NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE airflow_mq.upload (
    id bigint DEFAULT nextval('airflow_mq.id_seq'::regclass) NOT NULL,
    until bigint,
    path text DEFAULT ''::text NOT NULL
);

INSERT INTO airflow_mq.aside VALUES (1, 'initech', 0, 0, '\xe4968a0bd7b29b0d3b48d5e2e15f17677f313315b20e172b24300b42807ae79b', 5, '\x000000e8d4a510000000000000000001', '\x00000000000927c00000000040000000', 'overweight', 3, 1795401007814926, 1795401007597198, 3);

INSERT INTO airflow_mq.blob VALUES ('4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e', 100, 29, 1795401008526165);

INSERT INTO airflow_mq.blob_use VALUES (31, 0, '4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e', NULL);

INSERT INTO airflow_mq.block VALUES (3, 1, 'settled block', '\xa0ac83f8a22b35b3c8ccd5faaf10f751', 1, false, 1000000, 1796401007634168, 1795401007634168, 1795401007814926, '{"by": "root", "limit": [600000, 1073741824], "order": "deficit", "result": {"failed": 0, "weight": [1, 9], "expired": 0, "origins": 2, "processed": 1, "set_aside": 1, "went_back": 0}, "planned": [1, 9], "messages": 1, "overhead": [0, 0]}');
INSERT INTO airflow_mq.block VALUES (19, 1, 'block in flight', '\x086b2c20caf3a6c2fcbf7a6a23f644e8', 0, false, 1000000, 1796401008171987, 1795401008171987, NULL, '{"by": "root", "limit": [600000, 1073741824], "order": "deficit", "planned": [10, 68], "messages": 10, "overhead": [0, 0]}');
INSERT INTO airflow_mq.block VALUES (33, 2, 'settled block', '\xc683562f7431840457f21b13c3d18394', 1, false, 900, 1795401908729910, 1795401008729910, 1795401008993061, '{"by": "root", "limit": [600000, 1073741824], "order": "deficit", "result": {"failed": 0, "weight": [1, 9], "expired": 0, "origins": 1, "processed": 1, "set_aside": 0, "went_back": 0}, "planned": [1, 9], "messages": 1, "overhead": [0, 0]}');

INSERT INTO airflow_mq.book VALUES (1, 'initech', 1, 1, 1, 1, 5, NULL, 0, 7, '\x', 0);
INSERT INTO airflow_mq.book VALUES (1, 'acme', 1, 2, 1, 7, 44, 20, 0, 19, '\x', 0);
INSERT INTO airflow_mq.book VALUES (1, 'globex', 0, 1, 1, 3, 24, 21, 0, 19, '\x', 0);
INSERT INTO airflow_mq.book VALUES (2, 'a/b', 1, 1, 0, 0, 0, NULL, -1790, 36, '\x', 0);

INSERT INTO airflow_mq.branch VALUES (2, '', 0, -1790, '{"first":[]}');
INSERT INTO airflow_mq.branch VALUES (2, 'a/', -1790, -1790, '');

INSERT INTO airflow_mq.chunk VALUES (29, 0, '\x6c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c61726765');

INSERT INTO airflow_mq.claim VALUES (19, 0, 1, 'acme', false, '\x7b22706c616e6e6564223a5b372c34345d2c2272756e73223a5b7b2270616765223a312c226669727374223a302c22636f756e74223a372c22636c6f736564223a747275657d5d7d');
INSERT INTO airflow_mq.claim VALUES (19, 1, 1, 'globex', false, '\x7b22706c616e6e6564223a5b332c32345d2c2272756e73223a5b7b2270616765223a302c226669727374223a302c22636f756e74223a332c22636c6f736564223a747275657d5d7d');

INSERT INTO airflow_mq.delayed VALUES (26, 1795404608500811, 7, 1, 1, false, 'globex', '\x', '\x', '\x64656c61796564');

INSERT INTO airflow_mq.event VALUES (7, 1, 'acme', 3, 1795401007814926, 1, '\x010000000000000000000000000100000003000000006dd20a05f343532c260276d942748c58a353cbe520d807a44691fb91cbe9f1433d0100000001000000000000003d010000000900000000000000');
INSERT INTO airflow_mq.event VALUES (8, 1, 'initech', 3, 1795401007814926, 1, '\x0700000000000000000000000001000000018000000069742077656967687320312c3030302c3030302c3030302c3030302f312c206d6f7265207468616e20746865203630302c3030302f312c3037332c3734312c3832342074686174206120626c6f636b2063616e2063617272793b2073656e7420323032362d31312d32335430323a33303a30372e3539373139382b30303a3030e4968a0bd7b29b0d3b48d5e2e15f17677f313315b20e172b24300b42807ae79b');
INSERT INTO airflow_mq.event VALUES (36, 2, 'a/b', 33, 1795401008993061, 1, '\x010000000000000000000000000100000003000000006dd20a05f343532c260276d942748c58a353cbe520d807a44691fb91cbe9f1433d0100000001000000000000003d010000000900000000000000');

INSERT INTO airflow_mq.ledger VALUES (3, 1, 1795401007634168, '\x78018b8e564a4cce4d55d231343734b7b430b334b430d18936d4b18cd531d431d0514acd2d28c94c4d01cac7ea442b65e66596a42667a0a936d0318805aa45551d0b003934180e');
INSERT INTO airflow_mq.ledger VALUES (19, 1, 1795401008171987, '\x78015dca3d0e80200c06d0bb74fe060b94c2591a067f1a6322d1c1c1e3cbecf8926746f3da9d202cb1e64945024c915283620279bf9fc337023718ede7b5f83ba0acb5e4ca25c122c2d8f1b7db0744461815');
INSERT INTO airflow_mq.ledger VALUES (33, 2, 1795401008729910, '\x78018b8e564ad44f52d23134b0b4343534343332373737d38936d4b18cd531d431d0514acd2d28c94c4d01aa888d0500f7890b68');

INSERT INTO airflow_mq.mail VALUES (2, '2026-11-23 02:30:07.597198+00', 5, 1, 1, false, 'initech', '\x', '\x7b2265616368223a7b2230223a7b22776569676874223a5b313030303030303030303030302c315d7d7d7d', '\x6865617679');
INSERT INTO airflow_mq.mail VALUES (9, '2026-11-23 02:30:08.033029+00', 8, 1, 1, false, 'acme', '\x', '\x', '\x7265706f72746564');
INSERT INTO airflow_mq.mail VALUES (10, '2026-11-23 02:30:08.044083+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652030');
INSERT INTO airflow_mq.mail VALUES (11, '2026-11-23 02:30:08.045629+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652031');
INSERT INTO airflow_mq.mail VALUES (12, '2026-11-23 02:30:08.073329+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652032');
INSERT INTO airflow_mq.mail VALUES (13, '2026-11-23 02:30:08.074784+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652033');
INSERT INTO airflow_mq.mail VALUES (14, '2026-11-23 02:30:08.091499+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652034');
INSERT INTO airflow_mq.mail VALUES (15, '2026-11-23 02:30:08.105684+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652035');
INSERT INTO airflow_mq.mail VALUES (16, '2026-11-23 02:30:08.109573+00', 8, 1, 1, false, 'globex', '\x', '\x', '\x676c6f6265782030');
INSERT INTO airflow_mq.mail VALUES (17, '2026-11-23 02:30:08.115197+00', 8, 1, 1, false, 'globex', '\x', '\x', '\x676c6f6265782031');
INSERT INTO airflow_mq.mail VALUES (18, '2026-11-23 02:30:08.137537+00', 8, 1, 1, false, 'globex', '\x', '\x', '\x676c6f6265782032');
INSERT INTO airflow_mq.mail VALUES (23, '2026-11-23 02:30:08.452647+00', 8, 1, 1, false, 'initech', '\x', '\x', '\x616e206f72646572');
INSERT INTO airflow_mq.mail VALUES (24, '2026-11-23 02:30:08.467191+00', 13, 1, 1, false, 'initech', '\x', '\x', '\x616e6f74686572206f72646572');
INSERT INTO airflow_mq.mail VALUES (25, '2026-11-23 02:30:08.489557+00', 6, 1, 1, false, 'hooli', '\x', '\x', '\x706175736564');
INSERT INTO airflow_mq.mail VALUES (27, '2026-11-23 02:30:08.507161+00', 4, 1, 1, false, 'globex', '\x', '\x', '\x68696768');
INSERT INTO airflow_mq.mail VALUES (31, '2026-11-23 02:30:08.548025+00', 48, 1, 1, false, 'globex', '\x', '\x7b22626c6f6273223a7b2230223a22346435313130393962656363303830353862616537366533363161323633396533623062616633373838323230613861353962316266633531643936363537653a313030227d7d', '\x936d71626c6f620a4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e0000000000000064');
INSERT INTO airflow_mq.mail VALUES (37, '2026-11-23 02:30:09.266915+00', 7, 1, 2, false, 'a/b', '\x', '\x', '\x67726f75706564');
INSERT INTO airflow_mq.mail VALUES (38, '2026-11-23 02:30:09.295691+00', 7, 1, 2, false, 'a/c', '\x', '\x', '\x67726f75706564');

INSERT INTO airflow_mq.migration VALUES (1, '0001_initial', '08e237e8d5a78811c55198df992d5c704146192d2c851ab1d5c901e7cd871037', '2026-11-23 02:30:05.859341+00');
INSERT INTO airflow_mq.migration VALUES (2, '0002_blobs', '5b1ac97ecc2a81386a743ef97720a230ce4bedb8ea13618e04605e43affcd8b8', '2026-11-23 02:30:05.859341+00');
INSERT INTO airflow_mq.migration VALUES (3, '0003_paths', '5c99d0191c608b5d484153532daf81a29926e0a6078d4254516e6cf8f0d3798d', '2026-11-23 02:30:05.859341+00');
INSERT INTO airflow_mq.migration VALUES (4, '0004_set_aside', '2dd9f40afca30a97c219c06768c40570ab1e8d31ddc70f45467c7a43b3ced45c', '2026-11-23 02:30:05.859341+00');

INSERT INTO airflow_mq.outcome VALUES (22, 19, '\x5b5b2261636d65222c312c302c302c22646f6e65225d5d');

INSERT INTO airflow_mq.page VALUES (1, 'initech', 0, 1, 10, 1, 1, 5, 1, 2, 2, '\x3d0100000002000000000000003d0000000000000000000000003d0100000000000000000000003d010000000100000000000000', '\x3d010000000500000000000000', '\x02', '\x7b2230223a5b5b313030303030303030303030302c315d2c302c6e756c6c5d7d');
INSERT INTO airflow_mq.page VALUES (1, 'acme', 1, 7, 79, 0, 7, 44, 0, 9, 15, '\x3d0100000009000000000000003d0600000001000000000000003d0700000000000000000000003d070000000100000000000000', '\x4207000000000000000000000008060606060606', '\x', '\x');
INSERT INTO airflow_mq.page VALUES (1, 'globex', 0, 3, 39, 0, 3, 24, 0, 16, 18, '\x3d0100000010000000000000003d0200000001000000000000003d0300000000000000000000003d030000000100000000000000', '\x3d030000000800000000000000', '\x', '\x');

INSERT INTO airflow_mq.pause VALUES (1, 'hooli', 'audit', 'root', 1795401008023103, NULL, false);
INSERT INTO airflow_mq.pause VALUES (2, 'a', 'holidays', 'root', 1795401009309431, NULL, true);

INSERT INTO airflow_mq.ring OVERRIDING SYSTEM VALUE VALUES (1, 'default', '{"high": true, "costs": {}, "lease": 1000000.0, "order": "deficit", "paths": false, "backoff": 0.0, "ordered": true, "weigher": {"base": [1, 0], "per_byte": [0, 1000]}, "blob_path": null, "heap_size": 65536, "max_stale": 256, "key_window": 1000000.0, "keep_events": 604800.0, "keep_ledger": 2592000.0, "max_origins": null, "backoff_most": 3600.0, "keep_uploads": 3600.0, "max_attempts": 3, "most_of_limit": null, "service_weight": [600000, 1073741824], "kept_for_regular": 0.5, "max_message_size": null, "rounds_per_block": 64, "set_aside_expires": null, "discard_unreadable": false, "max_origins_per_group": null}', '2026-11-23 02:30:05.859341+00');
INSERT INTO airflow_mq.ring OVERRIDING SYSTEM VALUE VALUES (2, 'groups', '{"high": false, "costs": {}, "lease": 900.0, "order": "deficit", "paths": true, "backoff": 0.0, "ordered": true, "weigher": {"base": [1, 0], "per_byte": [0, 1000]}, "blob_path": null, "heap_size": 65536, "max_stale": 256, "key_window": 86400.0, "keep_events": 604800.0, "keep_ledger": 2592000.0, "max_origins": null, "backoff_most": 3600.0, "keep_uploads": 3600.0, "max_attempts": null, "most_of_limit": null, "service_weight": [600000, 1073741824], "kept_for_regular": 0.5, "max_message_size": null, "rounds_per_block": 256, "set_aside_expires": null, "discard_unreadable": false, "max_origins_per_group": null}', '2026-11-23 02:30:08.569396+00');

INSERT INTO airflow_mq.sent_key VALUES (1, 'heavy', '\xd99437aba8f735f36f688ec8dc41b11dfb2ee95c9256bae32c75e7b9f26a37f4', 1795401007597530);
INSERT INTO airflow_mq.sent_key VALUES (1, 'order-1', '\x98fc1a042b279eade98bcccaa04641fa677fe4ddc1b5371285b363eeb7cc79fa', 1795401008452753);
INSERT INTO airflow_mq.sent_key VALUES (1, 'order-2', '\x8976d1d4906aa3b7d6e2d95fce64596299e78b7541fae6bcb32bcdec2d09d094', 1795401008469092);

INSERT INTO airflow_mq.standing VALUES (1, 'acme', '{"share": 3}', false);

INSERT INTO airflow_mq.state VALUES (1, 4, 20, 19, '[[833, 18]]', NULL, 0, '');
INSERT INTO airflow_mq.state VALUES (2, 2, 34, 33, '[[850, 35]]', NULL, 0, '');

INSERT INTO airflow_mq.upload VALUES (29, NULL, '');

SELECT pg_catalog.setval('airflow_mq.id_seq', 38, true);

SELECT pg_catalog.setval('airflow_mq.ring_id_seq', 2, true);

ALTER TABLE ONLY airflow_mq.aside
    ADD CONSTRAINT aside_pkey PRIMARY KEY (ring, origin, page, item);

ALTER TABLE ONLY airflow_mq.blob
    ADD CONSTRAINT blob_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY airflow_mq.blob
    ADD CONSTRAINT blob_upload_key UNIQUE (upload);

ALTER TABLE ONLY airflow_mq.blob_use
    ADD CONSTRAINT blob_use_pkey PRIMARY KEY (mail, place);

ALTER TABLE ONLY airflow_mq.block
    ADD CONSTRAINT block_pkey PRIMARY KEY (id);

ALTER TABLE ONLY airflow_mq.block
    ADD CONSTRAINT block_token_key UNIQUE (token);

ALTER TABLE ONLY airflow_mq.book
    ADD CONSTRAINT book_pkey PRIMARY KEY (ring, origin);

ALTER TABLE ONLY airflow_mq.branch
    ADD CONSTRAINT branch_pkey PRIMARY KEY (ring, path);

ALTER TABLE ONLY airflow_mq.chunk
    ADD CONSTRAINT chunk_pkey PRIMARY KEY (upload, seq);

ALTER TABLE ONLY airflow_mq.claim
    ADD CONSTRAINT claim_pkey PRIMARY KEY (block, seq);

ALTER TABLE ONLY airflow_mq.delayed
    ADD CONSTRAINT delayed_pkey PRIMARY KEY (id);

ALTER TABLE ONLY airflow_mq.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY airflow_mq.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (block);

ALTER TABLE ONLY airflow_mq.measure
    ADD CONSTRAINT measure_pkey PRIMARY KEY (ring, processor, origin);

ALTER TABLE ONLY airflow_mq.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY airflow_mq.outcome
    ADD CONSTRAINT outcome_pkey PRIMARY KEY (id);

ALTER TABLE ONLY airflow_mq.page
    ADD CONSTRAINT page_pkey PRIMARY KEY (ring, origin, page);

ALTER TABLE ONLY airflow_mq.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (ring, origin);

ALTER TABLE ONLY airflow_mq.ring
    ADD CONSTRAINT ring_name_key UNIQUE (name);

ALTER TABLE ONLY airflow_mq.ring
    ADD CONSTRAINT ring_pkey PRIMARY KEY (id);

ALTER TABLE ONLY airflow_mq.sent_key
    ADD CONSTRAINT sent_key_pkey PRIMARY KEY (ring, key);

ALTER TABLE ONLY airflow_mq.standing
    ADD CONSTRAINT standing_pkey PRIMARY KEY (ring, origin);

ALTER TABLE ONLY airflow_mq.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (ring);

ALTER TABLE ONLY airflow_mq.upload
    ADD CONSTRAINT upload_pkey PRIMARY KEY (id);

CREATE INDEX aside_by_block ON airflow_mq.aside USING btree (ring, block, origin, page, item);

CREATE INDEX aside_by_first_block ON airflow_mq.aside USING btree (ring, arrived_block, origin, page, item);

CREATE INDEX aside_by_time ON airflow_mq.aside USING btree (ring, at);

CREATE INDEX blob_use_by_hash ON airflow_mq.blob_use USING btree (hash);

CREATE INDEX blob_use_past ON airflow_mq.blob_use USING btree (until, hash) WHERE (until IS NOT NULL);

CREATE INDEX block_ended ON airflow_mq.block USING btree (ring, ended_at) WHERE (state <> 0);

CREATE INDEX block_live ON airflow_mq.block USING btree (ring, deadline) WHERE (state = 0);

CREATE UNIQUE INDEX block_live_key ON airflow_mq.block USING btree (ring, key) WHERE (state = 0);

CREATE INDEX book_by_ticket ON airflow_mq.book USING btree (ring, ticket) WHERE (ticket IS NOT NULL);

CREATE INDEX claim_by_origin ON airflow_mq.claim USING btree (ring, origin);

CREATE INDEX delayed_by_due ON airflow_mq.delayed USING btree (ring, due, id);

CREATE INDEX event_by_origin ON airflow_mq.event USING btree (ring, origin, id);

CREATE INDEX event_by_time ON airflow_mq.event USING btree (ring, at);

CREATE INDEX ledger_by_time ON airflow_mq.ledger USING btree (ring, at);

CREATE INDEX mail_by_id ON airflow_mq.mail USING btree (ring, id);

CREATE UNIQUE INDEX mail_by_origin ON airflow_mq.mail USING btree (ring, origin, id);

CREATE INDEX outcome_by_block ON airflow_mq.outcome USING btree (block, id);

CREATE INDEX page_with_kept ON airflow_mq.page USING btree (ring, origin, page) WHERE (kept > 0);

CREATE INDEX pause_of_groups ON airflow_mq.pause USING btree (ring) WHERE below;

CREATE INDEX sent_key_by_time ON airflow_mq.sent_key USING btree (ring, at);

CREATE INDEX standing_with_least ON airflow_mq.standing USING btree (ring, origin) WHERE guaranteed;

CREATE INDEX upload_past ON airflow_mq.upload USING btree (until, id) WHERE (until IS NOT NULL);

CREATE TRIGGER delayed_leaves_blobs AFTER DELETE ON airflow_mq.delayed FOR EACH ROW WHEN (((old.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (old.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.leave_blobs();

CREATE TRIGGER delayed_uses_blobs AFTER INSERT ON airflow_mq.delayed FOR EACH ROW WHEN (((new.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (new.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.use_blobs();

CREATE TRIGGER mail_leaves_blobs AFTER DELETE ON airflow_mq.mail FOR EACH ROW WHEN (((old.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (old.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.leave_blobs();

CREATE TRIGGER mail_uses_blobs AFTER INSERT ON airflow_mq.mail FOR EACH ROW WHEN (((new.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (new.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.use_blobs();

ALTER TABLE ONLY airflow_mq.blob
    ADD CONSTRAINT blob_upload_fkey FOREIGN KEY (upload) REFERENCES airflow_mq.upload(id);

ALTER TABLE ONLY airflow_mq.blob_use
    ADD CONSTRAINT blob_use_hash_fkey FOREIGN KEY (hash) REFERENCES airflow_mq.blob(hash);

ALTER TABLE ONLY airflow_mq.state
    ADD CONSTRAINT state_ring_fkey FOREIGN KEY (ring) REFERENCES airflow_mq.ring(id) ON DELETE CASCADE;

