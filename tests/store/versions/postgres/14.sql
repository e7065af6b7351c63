-- facts: {"expected": ["acme 0", "acme 1", "acme 2", "acme 3", "acme 4", "acme 5", "globex 0", "globex 1", "globex 2", "an order", "another order", "paused", "handed on", "leased", "delayed", "high"], "set aside": ["heavy"], "lease": "default/0d3062b509378e0c9b134fd90d9f7a2f/umbrella:0:1", "block": "8dd38bf19c2b2c5effd87dad8f253b63", "large": "largelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelarge", "groups": ["grouped", "grouped"], "at": 1795677352205387}
-- senders: {"plain": ["INSERT INTO \"airflow_mq\".mail (ring, size, origin, heap, refers) VALUES (1, octet_length('\\x73656e7420706c61696e6c79'::bytea), 'acme', '\\x73656e7420706c61696e6c79'::bytea, false)"], "keyed": ["SET LOCAL statement_timeout = 0", "SET LOCAL statement_timeout = 300000"], "many": ["INSERT INTO \"airflow_mq\".mail (ring, size, items, more, origin, lengths, attributes, heap, refers)\nVALUES (1, 36, 2, false, 'acme', '\\x3d020000001200000000000000'::bytea, '\\x'::bytea, '\\x73656e742077697468206f7468657273203173656e742077697468206f74686572732032'::bytea, '\\x'::bytea <> '')"]}


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

CREATE FUNCTION airflow_mq.accept() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    NEW.stored := "airflow_mq".store_messages(NEW.caller, NEW.ring, NEW.origins, NEW.payloads, NEW.keys, NEW.headers, NEW.weight,
                                    NEW.not_before, NEW.expires, NEW.priority);
    RETURN NEW;
END
$$;

CREATE FUNCTION airflow_mq.check_headers(headers jsonb, most integer) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION airflow_mq.check_origin(origin text, invisible boolean) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF origin IS NULL OR octet_length(origin) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ100', MESSAGE = format(
            'invalid origin %L (%s bytes): expected 1 to 255 bytes', left(origin, 40), octet_length(origin));
    ELSIF origin ~ '[\u0001-\u001F\u007F-\u009F\u2028\u2029]' THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ100',
            MESSAGE = 'invalid origin: expected text without control characters';
    ELSIF NOT invisible AND origin ~ ('[\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F'
            '\u202A-\u202E\u2060-\u206F\u2800\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF9-\uFFFB\U0001D173-\U0001D17A'
            '\U000E0000-\U000E0FFF]') THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ100',
            MESSAGE = 'invalid origin: a character is invisible or changes the direction of text, so the origin may '
                      'look like another one; expected an origin without such characters',
            HINT = 'To permit them: airflow-mq ring change RING --set invisible_origins=true';
    END IF;
    RETURN origin;
END
$$;

CREATE FUNCTION airflow_mq.check_room(ring_id smallint, origins text[], is_reader boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    config jsonb;
    fresh text[];
    stored bigint;
    most integer;
    part record;
BEGIN
    IF NOT EXISTS (SELECT FROM "airflow_mq".new_origins(ring_id, origins)) THEN
        RETURN;
    END IF;
    -- Senders that add queues wait for each other, so that together they keep the limit.
    SELECT r.config INTO config FROM "airflow_mq".ring r WHERE r.id = ring_id FOR NO KEY UPDATE;
    fresh := ARRAY(SELECT "airflow_mq".new_origins(ring_id, origins));
    most := (config ->> 'max_origins')::integer;
    IF most IS NOT NULL THEN
        SELECT count(DISTINCT ltrim(o, E'\x01')) INTO stored FROM (
            SELECT "airflow_mq".stored_origins(ring_id, E'\x01', E'\x02', most + 1) AS o
            UNION ALL SELECT "airflow_mq".stored_origins(ring_id, E'\x02', E'\U0010FFFF', most + 1)
        ) s;
        IF cardinality(fresh) > greatest(most - stored, 0) THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ106', MESSAGE = CASE WHEN is_reader THEN format(
                'origin limit reached (max_origins=%s): cannot add origin %L', most,
                left(fresh[greatest(most - stored, 0) + 1], 80))
                ELSE 'origin limit reached: cannot add all origins of this call' END,
                HINT = 'Drain or remove an origin, or raise max_origins. Nothing of this call was stored.';
        END IF;
    END IF;
    most := (config ->> 'max_origins_per_group')::integer;
    IF most IS NOT NULL THEN
        FOR part IN SELECT split_part(o, '/', 1) AS name, array_agg(o ORDER BY o COLLATE "C") AS members
                    FROM unnest(fresh) o GROUP BY 1 ORDER BY 1 LOOP
            SELECT count(DISTINCT ltrim(o, E'\x01')) INTO stored FROM (
                SELECT "airflow_mq".stored_origins(ring_id, mark || part.name, mark || part.name || E'\x01', 2) AS o
                FROM unnest(ARRAY['', E'\x01']) mark
                UNION ALL
                SELECT "airflow_mq".stored_origins(ring_id, mark || part.name || '/', mark || part.name || '0', most + 1)
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

CREATE FUNCTION airflow_mq.leave_blobs() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    UPDATE "airflow_mq".blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
    RETURN NULL;
END
$$;

CREATE FUNCTION airflow_mq.new_origins(ring_id smallint, origins text[]) RETURNS SETOF text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT DISTINCT o.origin COLLATE "C" FROM unnest(origins) o(origin)
    WHERE NOT EXISTS (
        SELECT FROM unnest(ARRAY[o.origin, E'\x01' || o.origin]) q(name)
        WHERE EXISTS (SELECT FROM "airflow_mq".book b
                      WHERE b.ring = ring_id AND b.origin = q.name AND (b.pages > 0 OR b.ticket IS NOT NULL))
           OR EXISTS (SELECT FROM "airflow_mq".mail m WHERE m.ring = ring_id AND m.origin = q.name)
           OR EXISTS (SELECT FROM "airflow_mq".delayed d WHERE d.ring = ring_id AND d.origin = q.name)
    )
    ORDER BY 1
$$;

CREATE FUNCTION airflow_mq.packed_lengths(lengths integer[]) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT CASE WHEN cardinality(lengths) = 1 THEN ''::bytea ELSE
        'I'::bytea || substr(n, 4, 1) || substr(n, 3, 1) || substr(n, 2, 1) || substr(n, 1, 1)
        || '\x0000000000000000'::bytea
        || (SELECT string_agg(substr(b, 4, 1) || substr(b, 3, 1) || substr(b, 2, 1) || substr(b, 1, 1), ''::bytea
                              ORDER BY place)
            FROM (SELECT int4send(length) AS b, place FROM unnest(lengths) WITH ORDINALITY u(length, place)) w)
    END
    FROM int4send(cardinality(lengths)) n
$$;

CREATE FUNCTION airflow_mq.send(ring text, origin text, payload bytea, key text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb, weight numeric[] DEFAULT NULL::numeric[], not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, expires timestamp with time zone DEFAULT NULL::timestamp with time zone, priority text DEFAULT 'regular'::text) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT "airflow_mq".send_many(
        ring, ARRAY[origin], ARRAY[payload], CASE WHEN key IS NOT NULL THEN ARRAY[key] END,
        CASE WHEN headers IS NOT NULL THEN ARRAY[headers] END, weight, not_before, expires, priority)
$$;

CREATE FUNCTION airflow_mq.send_many(ring text, origins text[], payloads bytea[], keys text[] DEFAULT NULL::text[], headers jsonb[] DEFAULT NULL::jsonb[], weight numeric[] DEFAULT NULL::numeric[], not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, expires timestamp with time zone DEFAULT NULL::timestamp with time zone, priority text DEFAULT 'regular'::text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    count integer;
BEGIN
    INSERT INTO "airflow_mq".outbox AS o (ring, origins, payloads, keys, headers, weight, not_before, expires, priority)
    VALUES (ring, origins, payloads, keys, headers, weight, not_before, expires, priority)
    RETURNING o.stored INTO count;
    RETURN count;
END
$$;

CREATE FUNCTION airflow_mq.store_messages(caller name, ring text, origins text[], payloads bytea[], keys text[], headers jsonb[], weight numeric[], not_before timestamp with time zone, expires timestamp with time zone, priority text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    -- 5 bytes of header for each message in a page.
    header constant integer := 5;
    ring_id smallint;
    config jsonb;
    heap integer;
    total integer := coalesce(cardinality(origins), 0);
    is_writer boolean := has_table_privilege(caller, '"airflow_mq".mail', 'INSERT');
    patterns text[];
    refused text;
    shared jsonb := '{}';
    own jsonb;
    mark text := CASE store_messages.priority WHEN 'high' THEN E'\x01' ELSE '' END;
    moment bigint;
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
    SELECT r.id, r.config INTO ring_id, config FROM "airflow_mq".ring r WHERE r.name = store_messages.ring;
    -- Who may send. A role that may write the table itself needs no grant. Without a grant, a ring looks like none.
    IF NOT is_writer THEN
        SELECT array_agg(p) INTO patterns FROM "airflow_mq".sender g JOIN pg_roles r ON r.oid = g.role, unnest(g.patterns) p
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
                'invalid weight %s: expected two whole numbers, time and size, from 0 to 18446744073709551615', weight);
        END IF;
        shared := jsonb_build_object('weight', jsonb_build_array(trunc(weight[1]), trunc(weight[2])));
    END IF;
    IF expires IS NOT NULL THEN
        IF expires NOT BETWEEN '0001-01-01' AND '9999-12-31' THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = 'invalid expires: expected a time before the year 9999';
        END IF;
        shared := shared || jsonb_build_object('expires', trunc(extract(epoch FROM expires) * 1000000)::bigint);
    END IF;
    IF not_before NOT BETWEEN '0001-01-01' AND '9999-12-31' THEN
        RAISE EXCEPTION USING ERRCODE = 'MQ103', MESSAGE = 'invalid not_before: expected a time before the year 9999';
    END IF;

    -- Check each message, and assign it to an inbox row: a page's worth of messages of one origin with the same
    -- attributes. A message with a key has a row of its own.
    FOR given IN
        SELECT m.origin, m.payload, m.key, m.headers, m.place::integer
        FROM unnest(origins, payloads, keys, headers) WITH ORDINALITY m(origin, payload, key, headers, place)
        ORDER BY m.origin COLLATE "C", m.place
    LOOP
        IF part_origin IS DISTINCT FROM given.origin OR given.origin IS NULL THEN
            PERFORM "airflow_mq".check_origin(given.origin, coalesce((config ->> 'invisible_origins')::boolean, false));
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
            own := own || jsonb_build_object('headers', "airflow_mq".check_headers(
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

    -- Keys, in an order that is the same for all senders.
    moment := trunc(extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    FOR given IN
        SELECT k.key, k.origin, k.place,
               '\x01'::bytea || sha256(convert_to(k.origin, 'UTF8') || '\x00'::bytea || k.payload) AS digest
        FROM unnest(origins, payloads, keys) WITH ORDINALITY k(origin, payload, key, place)
        WHERE k.key IS NOT NULL
        ORDER BY k.key COLLATE "C", k.origin COLLATE "C", k.place
    LOOP
        INSERT INTO "airflow_mq".sent_key AS k (ring, key, origin, digest, at)
        VALUES (ring_id, given.key, given.origin, given.digest, moment)
        ON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at
        WHERE k.at <= moment - trunc(coalesce((config ->> 'key_window')::numeric, 86400) * 1000000)::bigint;
        CONTINUE WHEN FOUND;
        SELECT k.digest INTO stored FROM "airflow_mq".sent_key k
        WHERE k.ring = ring_id AND k.key = given.key AND k.origin = given.origin;
        -- Earlier versions stored a digest that PostgreSQL cannot compute: the key alone decides.
        IF octet_length(stored) = 33 AND stored <> given.digest THEN
            RAISE EXCEPTION USING ERRCODE = 'MQ105', MESSAGE = format(
                'idempotency key %L of origin %L was used for another message: expected one message for each key of '
                'an origin', left(given.key, 80), left(given.origin, 80)),
                HINT = 'Send another message with another key. Nothing of this call was stored.';
        END IF;
        skipped[given.place] := true;
    END LOOP;

    IF config ->> 'max_origins' IS NOT NULL OR config ->> 'max_origins_per_group' IS NOT NULL THEN
        PERFORM "airflow_mq".check_room(ring_id, ARRAY(
            SELECT DISTINCT m.origin FROM unnest(origins, skipped) m(origin, is_skipped) WHERE NOT m.is_skipped),
            is_writer);
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
        INSERT INTO "airflow_mq".mail (ring, size, items, more, origin, lengths, attributes, heap)
        SELECT ring_id, octet_length(p.heap), cardinality(p.lengths),
               p.part > 0 AND p.first < max(p.first) FILTER (WHERE p.part > 0) OVER (PARTITION BY p.origin),
               mark || p.origin, "airflow_mq".packed_lengths(p.lengths), convert_to(p.attributes, 'UTF8'), p.heap
        FROM packed p ORDER BY p.first;
    ELSE
        INSERT INTO "airflow_mq".delayed (due, ring, size, items, origin, attributes, heap)
        SELECT trunc(extract(epoch FROM not_before) * 1000000)::bigint, ring_id, octet_length(m.payload), 1,
               mark || m.origin, convert_to(m.attributes, 'UTF8'), m.payload
        FROM unnest(origins, payloads, attributes, skipped) WITH ORDINALITY
            m(origin, payload, attributes, is_skipped, place)
        WHERE NOT m.is_skipped ORDER BY m.place;
    END IF;
    IF mark <> '' THEN
        UPDATE "airflow_mq".ring r SET config = r.config || '{"high": true}'
        WHERE r.id = ring_id AND NOT coalesce((r.config ->> 'high')::boolean, false);
    END IF;
    RETURN (SELECT count(*) FROM unnest(skipped) s WHERE NOT s);
END
$$;

CREATE FUNCTION airflow_mq.stored_origins(ring_id smallint, low text, below text, most integer) RETURNS SETOF text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    (SELECT b.origin FROM "airflow_mq".book b
     WHERE b.ring = ring_id AND b.origin >= low AND b.origin < below AND (b.pages > 0 OR b.ticket IS NOT NULL)
     ORDER BY b.origin LIMIT most)
    UNION ALL
    (WITH RECURSIVE walk(origin, place) AS (
         SELECT min(m.origin), 1 FROM "airflow_mq".mail m WHERE m.ring = ring_id AND m.origin >= low
         UNION ALL
         SELECT (SELECT min(m.origin) FROM "airflow_mq".mail m WHERE m.ring = ring_id AND m.origin > walk.origin), walk.place + 1
         FROM walk
         WHERE walk.origin IS NOT NULL AND walk.origin < below AND walk.place < most
     )
     SELECT walk.origin FROM walk WHERE walk.origin < below)
    UNION ALL
    (SELECT DISTINCT d.origin FROM "airflow_mq".delayed d
     WHERE d.ring = ring_id AND d.origin >= low AND d.origin < below LIMIT most)
$$;

CREATE FUNCTION airflow_mq.use_blobs() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NEW.attributes <> '' AND position('"blobs":{'::bytea IN NEW.attributes) > 0 THEN
        INSERT INTO "airflow_mq".blob_use (mail, place, hash)
        SELECT NEW.id, used.key::integer, b.hash
        FROM jsonb_each_text(convert_from(NEW.attributes, 'UTF8')::jsonb -> 'blobs') AS used
        JOIN "airflow_mq".blob b ON b.hash = left(used.value, 64)
        FOR KEY SHARE OF b;
    END IF;
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
    number bigint NOT NULL,
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
    age bigint DEFAULT 0 NOT NULL,
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
    data bytea NOT NULL,
    id bigint NOT NULL
);

CREATE TABLE airflow_mq.loan (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C",
    mail bigint NOT NULL,
    lender_ring smallint NOT NULL,
    lender_origin text NOT NULL COLLATE pg_catalog."C",
    lender_mail bigint NOT NULL,
    start integer NOT NULL,
    let_go boolean DEFAULT false NOT NULL
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
    heap bytea NOT NULL,
    refers boolean DEFAULT true NOT NULL
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

CREATE VIEW airflow_mq.outbox AS
 SELECT NULL::name AS caller,
    NULL::text AS ring,
    NULL::text[] AS origins,
    NULL::bytea[] AS payloads,
    NULL::text[] AS keys,
    NULL::jsonb[] AS headers,
    NULL::numeric[] AS weight,
    NULL::timestamp with time zone AS not_before,
    NULL::timestamp with time zone AS expires,
    NULL::text AS priority,
    NULL::integer AS stored
  WHERE false;

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

CREATE TABLE airflow_mq.pin (
    ring smallint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C"
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

CREATE TABLE airflow_mq.sender (
    role regrole NOT NULL,
    ring smallint NOT NULL,
    origins text NOT NULL,
    patterns text[] NOT NULL,
    high boolean DEFAULT true NOT NULL
);

CREATE TABLE airflow_mq.sent_key (
    ring smallint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    digest bytea NOT NULL,
    at bigint NOT NULL,
    origin text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE airflow_mq.shard (
    ring smallint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    layout text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT shard_version_check CHECK ((version > 0))
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
    lease_holder text DEFAULT ''::text NOT NULL,
    blocks bigint DEFAULT 0 NOT NULL,
    age bigint DEFAULT 0 NOT NULL,
    oldest_block bigint DEFAULT 0 NOT NULL,
    lease_wanted boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE airflow_mq.upload (
    id bigint DEFAULT nextval('airflow_mq.id_seq'::regclass) NOT NULL,
    until bigint,
    path text DEFAULT ''::text NOT NULL
);

ALTER TABLE ONLY airflow_mq.outbox ALTER COLUMN caller SET DEFAULT CURRENT_USER;

INSERT INTO airflow_mq.aside VALUES (1, 'initech', 0, 0, '\xe4968a0bd7b29b0d3b48d5e2e15f17677f313315b20e172b24300b42807ae79b', 5, '\x000000e8d4a510000000000000000001', '\x00000000000927c00000000040000000', 'overweight', 1, 1795677352069297, 1795677352044644, 1);

INSERT INTO airflow_mq.blob VALUES ('4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e', 100, 38, 1795677352138204);

INSERT INTO airflow_mq.blob_use VALUES (40, 0, '4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e', NULL);

INSERT INTO airflow_mq.block VALUES (3, 1, 'settled block', '\xc4bc5e3679623f3ddb6fb09e89d4b61d', 1, false, 1000000, 1796677352050581, 1795677352050581, 1795677352069297, '{"by": "root", "limit": [600000, 1073741824], "order": "deficit", "result": {"failed": 0, "weight": [1, 9], "expired": 0, "origins": 2, "processed": 1, "set_aside": 1, "went_back": 0}, "server": {"dag": false, "name": "root", "limit": null}, "planned": [1, 9], "messages": 1, "overhead": [0, 0]}', 1);
INSERT INTO airflow_mq.block VALUES (11, 1, NULL, '\xdee0fd20e9e7100a371b78c45558a1a1', 2, false, 1000000, 0, 1795677352082614, 1795677352094576, '{"by": "root", "limit": [1, 9], "order": "view", "result": {"failed": 0, "weight": [1, 9], "expired": 0, "origins": 1, "processed": 1, "set_aside": 0, "went_back": 0}, "planned": [1, 9], "messages": 1, "overhead": [0, 0]}', 2);
INSERT INTO airflow_mq.block VALUES (15, 1, NULL, '\x0d3062b509378e0c9b134fd90d9f7a2f', 0, false, 1000000, 1796677352104454, 1795677352104454, NULL, '{"by": "root", "limit": [1, 6], "order": "view", "planned": [1, 6], "messages": 1, "overhead": [0, 0]}', 3);
INSERT INTO airflow_mq.block VALUES (26, 1, 'block in flight', '\x8dd38bf19c2b2c5effd87dad8f253b63', 0, false, 1000000, 1796677352117581, 1795677352117581, NULL, '{"by": "root", "limit": [600000, 1073741824], "order": "deficit", "server": {"dag": false, "name": "root", "limit": null}, "planned": [11, 77], "messages": 11, "overhead": [0, 0]}', 4);
INSERT INTO airflow_mq.block VALUES (42, 2, 'settled block', '\xb7f14ef170f73a0b76579cb1d70785d2', 1, false, 900, 1795678252174095, 1795677352174095, 1795677352195257, '{"by": "root", "limit": [600000, 1073741824], "order": "deficit", "result": {"failed": 0, "weight": [1, 9], "expired": 0, "origins": 1, "processed": 1, "set_aside": 0, "went_back": 0}, "server": {"dag": false, "name": "root", "limit": null}, "planned": [1, 9], "messages": 1, "overhead": [0, 0]}', 1);

INSERT INTO airflow_mq.book VALUES (1, 'initech', 1, 1, 1, 1, 5, NULL, 0, 7, '\x', 0, -1);
INSERT INTO airflow_mq.book VALUES (1, 'globex', 0, 1, 1, 3, 24, 30, 0, 26, '\x', 0, 0);
INSERT INTO airflow_mq.book VALUES (1, 'acme', 1, 2, 1, 7, 44, 29, 0, 26, '\x', 0, -2);
INSERT INTO airflow_mq.book VALUES (1, 'umbrella', 0, 1, 1, 1, 6, 27, 0, 14, '\x', 0, -2);
INSERT INTO airflow_mq.book VALUES (1, 'wayne', 0, 1, 1, 1, 9, 28, 0, 26, '\x', 0, -1);
INSERT INTO airflow_mq.book VALUES (2, 'a/b', 1, 1, 0, 0, 0, NULL, -1790, 45, '\x', 0, -1);

INSERT INTO airflow_mq.branch VALUES (2, '', 0, -1790, '{"first":[]}');
INSERT INTO airflow_mq.branch VALUES (2, 'a/', -1790, -1790, '');

INSERT INTO airflow_mq.chunk VALUES (38, 0, '\x6c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c617267656c61726765');

INSERT INTO airflow_mq.claim VALUES (15, 0, 1, 'umbrella', false, '\x7b22706c616e6e6564223a5b312c365d2c226f726465726564223a747275652c2272756e73223a5b7b2270616765223a302c226669727374223a312c22636f756e74223a312c22636c6f736564223a747275657d5d7d');
INSERT INTO airflow_mq.claim VALUES (26, 0, 1, 'wayne', false, '\x7b22706c616e6e6564223a5b312c395d2c226f726465726564223a747275652c2272756e73223a5b7b2270616765223a302c226669727374223a302c22636f756e74223a312c22636c6f736564223a747275657d5d7d');
INSERT INTO airflow_mq.claim VALUES (26, 1, 1, 'acme', false, '\x7b22706c616e6e6564223a5b372c34345d2c226f726465726564223a747275652c2272756e73223a5b7b2270616765223a312c226669727374223a302c22636f756e74223a372c22636c6f736564223a747275657d5d7d');
INSERT INTO airflow_mq.claim VALUES (26, 2, 1, 'globex', false, '\x7b22706c616e6e6564223a5b332c32345d2c226f726465726564223a747275652c2272756e73223a5b7b2270616765223a302c226669727374223a302c22636f756e74223a332c22636c6f736564223a747275657d5d7d');

INSERT INTO airflow_mq.delayed VALUES (35, 1795680952133937, 7, 1, 1, false, 'globex', '\x', '\x', '\x64656c61796564');

INSERT INTO airflow_mq.event VALUES (7, 1, 'acme', 1, 1795677352069297, 1, '\x010000000000000000000000000100000003000000006dd20a05f343532c260276d942748c58a353cbe520d807a44691fb91cbe9f1433d0100000001000000000000003d010000000900000000000000');
INSERT INTO airflow_mq.event VALUES (8, 1, 'initech', 1, 1795677352069297, 1, '\x0700000000000000000000000001000000018000000069742077656967687320312c3030302c3030302c3030302c3030302f312c206d6f7265207468616e20746865203630302c3030302f312c3037332c3734312c3832342074686174206120626c6f636b2063616e2063617272793b2073656e7420323032362d31312d32365430373a31353a35322e3034343634342b30303a3030e4968a0bd7b29b0d3b48d5e2e15f17677f313315b20e172b24300b42807ae79b');
INSERT INTO airflow_mq.event VALUES (14, 1, 'umbrella', 2, 1795677352094576, 1, '\x100000000000000000000000000100000001050000007761796e65177a911f4585d3020d4ee979115141d39447443df2310eb98a6d483b272305a7');
INSERT INTO airflow_mq.event VALUES (45, 2, 'a/b', 1, 1795677352195257, 1, '\x010000000000000000000000000100000003000000006dd20a05f343532c260276d942748c58a353cbe520d807a44691fb91cbe9f1433d0100000001000000000000003d010000000900000000000000');

INSERT INTO airflow_mq.ledger VALUES (1, 1, 1795677352050581, '\x780105c1c10900210c00c15ef66d05e9266014212a44bd8fd8fbcd5c96c567815c86764388393789ac1529eacb12de7adbc838eeeffdbfb6119278018b8e564a4cce4d55d231343734b7b430b334b430d18936d4b18cd531d431d0514acd2d28c94c4d01cac7ea442b65e66596a42667a0a936d0318805aa45551d0b003934180e', 3);
INSERT INTO airflow_mq.ledger VALUES (4, 1, 1795677352117581, '\x780105c1c10900210c00c15ef66d05e9266014212a44bd8fd8fbcd5c96c567815c86764388393789ac1529eacb12de7adbc838eeeffdbfb61192780165ccc10ec2201084e157319ce7c016e89667d970a0ba5612a8c6d4a86f2f269eea69fec39711318f36dfb5d66c60211636f5b530653d9c6b592e9b01258879e6f7aabd99384e63a4c943083181be5adb6d2b7afad97c6c9d060a2e8e964318200cef13f8df2ef53aeb6b77ec3074ed763a7d0052942f04', 26);
INSERT INTO airflow_mq.ledger VALUES (1, 2, 1795677352174095, '\x780105c1c10900210c00c15ef66d05e9266014212a44bd8fd8fbcd5c96c567815c86764388393789ac1529eacb12de7adbc838eeeffdbfb6119278018b8e564ad44f52d231b33037b4343137333736d38936d4b18cd531d431d0514acd2d28c94c4d51d2318c8d0500e6020b0b', 42);

INSERT INTO airflow_mq.loan VALUES (1, 'wayne', 13, 1, 'umbrella', 9, 0, false);

INSERT INTO airflow_mq.mail VALUES (2, '2026-11-26 07:15:52.044644+00', 5, 1, 1, false, 'initech', '\x', '\x7b22616c6c223a7b22776569676874223a5b313030303030303030303030302c315d7d7d', '\x6865617679', true);
INSERT INTO airflow_mq.mail VALUES (9, '2026-11-26 07:15:52.081374+00', 9, 1, 1, false, 'umbrella', '\x', '\x', '\x68616e646564206f6e', false);
INSERT INTO airflow_mq.mail VALUES (10, '2026-11-26 07:15:52.081677+00', 6, 1, 1, false, 'umbrella', '\x', '\x', '\x6c6561736564', false);
INSERT INTO airflow_mq.mail VALUES (13, '2026-11-26 07:15:52.089689+00', 9, 1, 1, false, 'wayne', '\x', '\x7b22616c6c223a7b226c6f616e223a747275657d7d', '\x', true);
INSERT INTO airflow_mq.mail VALUES (16, '2026-11-26 07:15:52.113515+00', 8, 1, 1, false, 'acme', '\x', '\x', '\x7265706f72746564', false);
INSERT INTO airflow_mq.mail VALUES (17, '2026-11-26 07:15:52.11386+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652030', false);
INSERT INTO airflow_mq.mail VALUES (18, '2026-11-26 07:15:52.114165+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652031', false);
INSERT INTO airflow_mq.mail VALUES (19, '2026-11-26 07:15:52.114467+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652032', false);
INSERT INTO airflow_mq.mail VALUES (20, '2026-11-26 07:15:52.114743+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652033', false);
INSERT INTO airflow_mq.mail VALUES (21, '2026-11-26 07:15:52.115001+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652034', false);
INSERT INTO airflow_mq.mail VALUES (22, '2026-11-26 07:15:52.115322+00', 6, 1, 1, false, 'acme', '\x', '\x', '\x61636d652035', false);
INSERT INTO airflow_mq.mail VALUES (23, '2026-11-26 07:15:52.11561+00', 8, 1, 1, false, 'globex', '\x', '\x', '\x676c6f6265782030', false);
INSERT INTO airflow_mq.mail VALUES (24, '2026-11-26 07:15:52.115896+00', 8, 1, 1, false, 'globex', '\x', '\x', '\x676c6f6265782031', false);
INSERT INTO airflow_mq.mail VALUES (25, '2026-11-26 07:15:52.116167+00', 8, 1, 1, false, 'globex', '\x', '\x', '\x676c6f6265782032', false);
INSERT INTO airflow_mq.mail VALUES (32, '2026-11-26 07:15:52.130138+00', 8, 1, 1, false, 'initech', '\x', '\x', '\x616e206f72646572', false);
INSERT INTO airflow_mq.mail VALUES (33, '2026-11-26 07:15:52.132014+00', 13, 1, 1, false, 'initech', '\x', '\x', '\x616e6f74686572206f72646572', false);
INSERT INTO airflow_mq.mail VALUES (34, '2026-11-26 07:15:52.133611+00', 6, 1, 1, false, 'hooli', '\x', '\x', '\x706175736564', false);
INSERT INTO airflow_mq.mail VALUES (36, '2026-11-26 07:15:52.13511+00', 4, 1, 1, false, 'globex', '\x', '\x', '\x68696768', false);
INSERT INTO airflow_mq.mail VALUES (40, '2026-11-26 07:15:52.14317+00', 48, 1, 1, false, 'globex', '\x', '\x7b22626c6f6273223a7b2230223a22346435313130393962656363303830353862616537366533363161323633396533623062616633373838323230613861353962316266633531643936363537653a313030227d7d', '\x936d71626c6f620a4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e0000000000000064', true);
INSERT INTO airflow_mq.mail VALUES (46, '2026-11-26 07:15:52.203223+00', 7, 1, 2, false, 'a/b', '\x', '\x', '\x67726f75706564', false);
INSERT INTO airflow_mq.mail VALUES (47, '2026-11-26 07:15:52.203578+00', 7, 1, 2, false, 'a/c', '\x', '\x', '\x67726f75706564', false);

INSERT INTO airflow_mq.migration VALUES (1, '0001_initial', '08e237e8d5a78811c55198df992d5c704146192d2c851ab1d5c901e7cd871037', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (2, '0002_blobs', '5b1ac97ecc2a81386a743ef97720a230ce4bedb8ea13618e04605e43affcd8b8', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (3, '0003_paths', '5c99d0191c608b5d484153532daf81a29926e0a6078d4254516e6cf8f0d3798d', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (4, '0004_set_aside', '2dd9f40afca30a97c219c06768c40570ab1e8d31ddc70f45467c7a43b3ced45c', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (5, '0005_loans', '116643d5c724c9003e61c872db2acbd30548b62fc51651b4176d71a4bddc04b0', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (6, '0006_search_path', '958578172b9c5a8f800b798edfffe680662c2ae8d52f02edaa67ea8df513802e', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (7, '0007_keys_by_origin', '3fb171cf0f3197caf4cc1b7a522a8b72ddac8e09d3ef3570af5656b94a5b61c6', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (8, '0008_block_numbers', 'a88529edd3a99be85a6a7abbd326561d3e0f7ee4e8b8f8454b7eacf002b84baf', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (9, '0009_sending', '1d112ec3613b76c7b7ecc38cad355b6bd8beed29b648fedafa0c8954b0dcf305', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (10, '0010_shards', '620c8192ca3471bb0223b15e1844fe9403f3c390d24d0146f52b481a70741a93', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (11, '0011_ages', '680098ad630f3d50f772db99bd76f00fe6c3d5144bdc7564f7cddefebc2dd995', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (12, '0012_refers', 'fa12860d1f8828d9316dc4f598af163c14a98537d3a8f8f8f64c36fef18f82f9', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (13, '0013_lease_wanted', 'ec2c41f969e37eab957ec7b608f6c2bdbeb20ef6a6901af818ca0c308d7280a7', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.migration VALUES (14, '0014_order_of_keys', '9680e139576577549d1cbae037225ef829b7577781546c2516621c3ad28091e1', '2026-11-26 07:15:51.911169+00');

INSERT INTO airflow_mq.outcome VALUES (31, 26, '\x5b5b2261636d65222c312c302c302c22646f6e65225d5d');

INSERT INTO airflow_mq.page VALUES (1, 'initech', 0, 1, 10, 1, 1, 5, 1, 2, 2, '\x3d0100000002000000000000003d0000000000000000000000003d0100000000000000000000003d010000000100000000000000', '\x3d010000000500000000000000', '\x02', '\x7b2230223a5b5b313030303030303030303030302c315d2c302c6e756c6c5d7d');
INSERT INTO airflow_mq.page VALUES (1, 'umbrella', 0, 2, 25, 1, 1, 6, 0, 9, 10, '\x3d0100000009000000000000003d0100000001000000000000003d0200000000000000000000003d020000000100000000000000', '\x420200000000000000000000000906', '\x', '\x7b2230223a5b6e756c6c2c302c6e756c6c2c6e756c6c2c6e756c6c2c747275655d7d');
INSERT INTO airflow_mq.page VALUES (1, 'wayne', 0, 1, 14, 0, 1, 9, 0, 13, 13, '\x3d010000000d000000000000003d0000000000000000000000003d0100000000000000000000003d010000000100000000000000', '\x3d010000000900000000000000', '\x', '\x7b2230223a5b6e756c6c2c302c6e756c6c2c6e756c6c2c6e756c6c2c747275655d7d');
INSERT INTO airflow_mq.page VALUES (1, 'acme', 1, 7, 79, 0, 7, 44, 0, 16, 22, '\x3d0100000010000000000000003d0600000001000000000000003d0700000000000000000000003d070000000100000000000000', '\x4207000000000000000000000008060606060606', '\x', '\x');
INSERT INTO airflow_mq.page VALUES (1, 'globex', 0, 3, 39, 0, 3, 24, 0, 23, 25, '\x3d0100000017000000000000003d0200000001000000000000003d0300000000000000000000003d030000000100000000000000', '\x3d030000000800000000000000', '\x', '\x');

INSERT INTO airflow_mq.pause VALUES (1, 'hooli', 'audit', 'root', 1795677352080544, NULL, false);
INSERT INTO airflow_mq.pause VALUES (2, 'a', 'holidays', 'root', 1795677352204128, NULL, true);

INSERT INTO airflow_mq.ring OVERRIDING SYSTEM VALUE VALUES (1, 'default', '{"high": true, "costs": {}, "lease": 1000000.0, "order": "deficit", "paths": false, "backoff": 0.0, "ordered": true, "weigher": {"base": [1, 0], "per_byte": [0, 1000]}, "blob_path": null, "heap_size": 65536, "max_stale": 256, "key_window": 1000000.0, "keep_events": 604800.0, "keep_ledger": 2592000.0, "max_headers": 16384, "max_origins": null, "backoff_most": 3600.0, "keep_uploads": 3600.0, "max_attempts": 3, "most_of_limit": null, "service_weight": [600000, 1073741824], "whole_payloads": 67108864, "set_aside_above": "ring", "kept_for_regular": 0.5, "max_block_queues": 4096, "max_message_size": null, "rounds_per_block": 64, "invisible_origins": false, "set_aside_expires": null, "discard_unreadable": false, "earlier_blob_paths": [], "max_origins_per_group": null}', '2026-11-26 07:15:51.911169+00');
INSERT INTO airflow_mq.ring OVERRIDING SYSTEM VALUE VALUES (2, 'groups', '{"high": false, "costs": {}, "lease": 900.0, "order": "deficit", "paths": true, "backoff": 0.0, "ordered": true, "weigher": {"base": [1, 0], "per_byte": [0, 1000]}, "blob_path": null, "heap_size": 65536, "max_stale": 256, "key_window": 86400.0, "keep_events": 604800.0, "keep_ledger": 2592000.0, "max_headers": 16384, "max_origins": null, "backoff_most": 3600.0, "keep_uploads": 3600.0, "max_attempts": null, "most_of_limit": null, "service_weight": [600000, 1073741824], "whole_payloads": 67108864, "set_aside_above": "ring", "kept_for_regular": 0.5, "max_block_queues": 4096, "max_message_size": null, "rounds_per_block": 256, "invisible_origins": false, "set_aside_expires": null, "discard_unreadable": false, "earlier_blob_paths": [], "max_origins_per_group": null}', '2026-11-26 07:15:52.149059+00');

INSERT INTO airflow_mq.sent_key VALUES (1, 'heavy', '\x01d88a68352fa7cfd6fa0909e9cbcb850fa91f18084e073a2d9c3490fa2ed6e64e', 1795677352044696, 'initech');
INSERT INTO airflow_mq.sent_key VALUES (1, 'order-1', '\x01710c09cbd58324d60eb508ec4acd087291401ea415c148bb98d053ad54702c34', 1795677352130151, 'initech');
INSERT INTO airflow_mq.sent_key VALUES (1, 'order-2', '\x01707618f7bfe9141238d435ad4716c34ca162b27394b9982978e8810b36cd5cae', 1795677352132027, 'initech');

INSERT INTO airflow_mq.standing VALUES (1, 'acme', '{"share": 3}', false);

INSERT INTO airflow_mq.state VALUES (1, 7, 27, 26, '[[753, 25]]', NULL, 0, '', 4, -7, 15, false);
INSERT INTO airflow_mq.state VALUES (2, 2, 43, 42, '[[770, 44]]', NULL, 0, '', 1, -2, 42, false);

INSERT INTO airflow_mq.upload VALUES (38, NULL, '');

SELECT pg_catalog.setval('airflow_mq.id_seq', 47, true);

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
    ADD CONSTRAINT book_pkey PRIMARY KEY (ring, origin, age);

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
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (ring, block);

ALTER TABLE ONLY airflow_mq.loan
    ADD CONSTRAINT loan_pkey PRIMARY KEY (ring, origin, mail);

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

ALTER TABLE ONLY airflow_mq.pin
    ADD CONSTRAINT pin_pkey PRIMARY KEY (ring, origin);

ALTER TABLE ONLY airflow_mq.ring
    ADD CONSTRAINT ring_name_key UNIQUE (name);

ALTER TABLE ONLY airflow_mq.ring
    ADD CONSTRAINT ring_pkey PRIMARY KEY (id);

ALTER TABLE ONLY airflow_mq.sender
    ADD CONSTRAINT sender_pkey PRIMARY KEY (role, ring);

ALTER TABLE ONLY airflow_mq.sent_key
    ADD CONSTRAINT sent_key_pkey PRIMARY KEY (ring, key, origin);

ALTER TABLE ONLY airflow_mq.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (ring);

ALTER TABLE ONLY airflow_mq.standing
    ADD CONSTRAINT standing_pkey PRIMARY KEY (ring, origin);

ALTER TABLE ONLY airflow_mq.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (ring, age);

ALTER TABLE ONLY airflow_mq.upload
    ADD CONSTRAINT upload_pkey PRIMARY KEY (id);

CREATE INDEX aside_by_block ON airflow_mq.aside USING btree (ring, block, origin, page, item);

CREATE INDEX aside_by_first_block ON airflow_mq.aside USING btree (ring, arrived_block, origin, page, item);

CREATE INDEX aside_by_time ON airflow_mq.aside USING btree (ring, at);

CREATE INDEX blob_use_by_hash ON airflow_mq.blob_use USING btree (hash);

CREATE INDEX blob_use_past ON airflow_mq.blob_use USING btree (until, hash) WHERE (until IS NOT NULL);

CREATE UNIQUE INDEX block_by_number ON airflow_mq.block USING btree (ring, number);

CREATE INDEX block_ended ON airflow_mq.block USING btree (ring, ended_at) WHERE (state <> 0);

CREATE INDEX block_live ON airflow_mq.block USING btree (ring, id) WHERE (state = 0);

CREATE UNIQUE INDEX block_live_key ON airflow_mq.block USING btree (ring, key) WHERE (state = 0);

CREATE INDEX book_by_ticket ON airflow_mq.book USING btree (ring, ticket) WHERE (ticket IS NOT NULL);

CREATE INDEX claim_by_origin ON airflow_mq.claim USING btree (ring, origin, block);

CREATE INDEX delayed_by_due ON airflow_mq.delayed USING btree (ring, due, id);

CREATE INDEX delayed_by_origin ON airflow_mq.delayed USING btree (ring, origin);

CREATE INDEX event_by_origin ON airflow_mq.event USING btree (ring, origin, id);

CREATE INDEX event_by_time ON airflow_mq.event USING btree (ring, at);

CREATE INDEX ledger_by_time ON airflow_mq.ledger USING btree (ring, at);

CREATE INDEX loan_by_lender ON airflow_mq.loan USING btree (lender_ring, lender_origin, lender_mail);

CREATE INDEX mail_by_id ON airflow_mq.mail USING btree (ring, id);

CREATE UNIQUE INDEX mail_by_origin ON airflow_mq.mail USING btree (ring, origin, id);

CREATE INDEX outcome_by_block ON airflow_mq.outcome USING btree (block, id);

CREATE INDEX page_with_kept ON airflow_mq.page USING btree (ring, origin, page) WHERE (kept > 0);

CREATE INDEX pause_of_groups ON airflow_mq.pause USING btree (ring) WHERE below;

CREATE INDEX sent_key_by_time ON airflow_mq.sent_key USING btree (ring, at);

CREATE INDEX standing_with_least ON airflow_mq.standing USING btree (ring, origin) WHERE guaranteed;

CREATE INDEX upload_past ON airflow_mq.upload USING btree (until, id) WHERE (until IS NOT NULL);

CREATE TRIGGER accept INSTEAD OF INSERT ON airflow_mq.outbox FOR EACH ROW EXECUTE FUNCTION airflow_mq.accept();

CREATE TRIGGER delayed_leaves_blobs AFTER DELETE ON airflow_mq.delayed FOR EACH ROW WHEN (((old.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (old.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.leave_blobs();

CREATE TRIGGER delayed_uses_blobs AFTER INSERT ON airflow_mq.delayed FOR EACH ROW WHEN (((new.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (new.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.use_blobs();

CREATE TRIGGER mail_leaves_blobs AFTER DELETE ON airflow_mq.mail FOR EACH ROW WHEN (((old.attributes <> '\x'::bytea) AND (POSITION(('\x22626c6f6273223a7b'::bytea) IN (old.attributes)) > 0))) EXECUTE FUNCTION airflow_mq.leave_blobs();

CREATE TRIGGER mail_uses_blobs AFTER INSERT ON airflow_mq.mail FOR EACH ROW WHEN (new.refers) EXECUTE FUNCTION airflow_mq.use_blobs();

ALTER TABLE ONLY airflow_mq.blob
    ADD CONSTRAINT blob_upload_fkey FOREIGN KEY (upload) REFERENCES airflow_mq.upload(id);

ALTER TABLE ONLY airflow_mq.blob_use
    ADD CONSTRAINT blob_use_hash_fkey FOREIGN KEY (hash) REFERENCES airflow_mq.blob(hash);

ALTER TABLE ONLY airflow_mq.pin
    ADD CONSTRAINT pin_ring_fkey FOREIGN KEY (ring) REFERENCES airflow_mq.ring(id) ON DELETE CASCADE;

ALTER TABLE ONLY airflow_mq.sender
    ADD CONSTRAINT sender_ring_fkey FOREIGN KEY (ring) REFERENCES airflow_mq.ring(id) ON DELETE CASCADE;

ALTER TABLE ONLY airflow_mq.shard
    ADD CONSTRAINT shard_ring_fkey FOREIGN KEY (ring) REFERENCES airflow_mq.ring(id) ON DELETE CASCADE;

ALTER TABLE ONLY airflow_mq.state
    ADD CONSTRAINT state_ring_fkey FOREIGN KEY (ring) REFERENCES airflow_mq.ring(id) ON DELETE CASCADE;

