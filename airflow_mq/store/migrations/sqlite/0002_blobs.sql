-- Payloads larger than a page, kept apart: each once by its hash, for as long as anything refers to it.

-- Bytes on their way in, or arrived. What belongs to no blob and is past its time is swept away.
CREATE TABLE {s}upload (
    id INTEGER PRIMARY KEY,
    -- When it is given up; never, once it is a blob's.
    until INTEGER,
    -- The folder in which its file lies; none, where its bytes lie in chunks.
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

-- Who refers to a blob: a message, by its mail and its place there, or, until a time, who uploaded it.
-- A message that is gone leaves a use that is past: by these the sweep finds what nobody needs any more.
CREATE TABLE {s}blob_use (
    mail INTEGER NOT NULL,
    place INTEGER NOT NULL,
    hash TEXT NOT NULL REFERENCES {s}blob (hash),
    until INTEGER,
    PRIMARY KEY (mail, place)
) STRICT;
CREATE INDEX {s}blob_use_by_hash ON {s}blob_use (hash);
CREATE INDEX {s}blob_use_past ON {s}blob_use (until, hash) WHERE until IS NOT NULL;

-- Uses follow the mail, whoever writes or removes it. Mail that refers to nothing pays for a look at its attributes.
-- A reference to a blob that is not there (any more) is stored all the same: it is told when it is tried.
CREATE TRIGGER {s}mail_uses_blobs AFTER INSERT ON {s}mail
WHEN NEW.attributes <> x'' AND instr(NEW.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    INSERT INTO {s}blob_use (mail, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN {s}blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER {s}mail_leaves_blobs AFTER DELETE ON {s}mail
WHEN OLD.attributes <> x'' AND instr(OLD.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
END;
CREATE TRIGGER {s}delayed_uses_blobs AFTER INSERT ON {s}delayed
WHEN NEW.attributes <> x'' AND instr(NEW.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    INSERT INTO {s}blob_use (mail, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN {s}blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER {s}delayed_leaves_blobs AFTER DELETE ON {s}delayed
WHEN OLD.attributes <> x'' AND instr(OLD.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    UPDATE {s}blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
END;
