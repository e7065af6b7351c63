-- Payloads larger than a page, kept apart: each once by its hash, for as long as anything refers to it.

-- Bytes on their way in, or arrived. What belongs to no blob and is past its time is swept away.
CREATE TABLE {s}upload (
    id bigint PRIMARY KEY DEFAULT nextval('{s}id_seq'),
    -- When it is given up; never, once it is a blob's.
    until bigint,
    -- The folder in which its file lies; none, where its bytes lie in chunks.
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

-- Who refers to a blob: a message, by its mail and its place there, or, until a time, who uploaded it.
-- A message that is gone leaves a use that is past: by these the sweep finds what nobody needs any more.
CREATE TABLE {s}blob_use (
    mail bigint NOT NULL,
    place integer NOT NULL,
    hash text COLLATE "C" NOT NULL REFERENCES {s}blob (hash),
    until bigint,
    PRIMARY KEY (mail, place)
);
CREATE INDEX blob_use_by_hash ON {s}blob_use (hash);
CREATE INDEX blob_use_past ON {s}blob_use (until, hash) WHERE until IS NOT NULL;

-- A reference to a blob that is not there (any more) is stored all the same: it is told when it is tried.
CREATE FUNCTION {s}use_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {s}blob_use (mail, place, hash)
    SELECT NEW.id, said.key::integer, b.hash
    FROM jsonb_each_text(convert_from(NEW.attributes, 'UTF8')::jsonb -> 'blobs') AS said
    JOIN {s}blob b ON b.hash = left(said.value, 64)
    FOR KEY SHARE OF b;
    RETURN NULL;
END
$$;

CREATE FUNCTION {s}leave_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
    RETURN NULL;
END
$$;

-- Uses follow the mail, whoever writes or removes it. Mail that refers to nothing pays for a look at its attributes.
CREATE TRIGGER mail_uses_blobs AFTER INSERT ON {s}mail FOR EACH ROW
    WHEN (NEW.attributes <> '' AND position('"blobs":{'::bytea IN NEW.attributes) > 0) EXECUTE FUNCTION {s}use_blobs();
CREATE TRIGGER mail_leaves_blobs AFTER DELETE ON {s}mail FOR EACH ROW
    WHEN (OLD.attributes <> '' AND position('"blobs":{'::bytea IN OLD.attributes) > 0) EXECUTE FUNCTION {s}leave_blobs();
CREATE TRIGGER delayed_uses_blobs AFTER INSERT ON {s}delayed FOR EACH ROW
    WHEN (NEW.attributes <> '' AND position('"blobs":{'::bytea IN NEW.attributes) > 0) EXECUTE FUNCTION {s}use_blobs();
CREATE TRIGGER delayed_leaves_blobs AFTER DELETE ON {s}delayed FOR EACH ROW
    WHEN (OLD.attributes <> '' AND position('"blobs":{'::bytea IN OLD.attributes) > 0) EXECUTE FUNCTION {s}leave_blobs();
