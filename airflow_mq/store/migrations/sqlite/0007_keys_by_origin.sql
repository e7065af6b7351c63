-- Each origin has its own idempotency keys. Keys stored before this migration have no origin (the empty text, which
-- is no origin); their digests cover the origin, so they still refuse the same message of the same origin.

CREATE TABLE {s}sent_key_by_origin (
    ring INTEGER NOT NULL,
    key TEXT NOT NULL,
    origin TEXT NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (ring, key, origin)
) STRICT;
INSERT INTO {s}sent_key_by_origin SELECT ring, key, '', digest, at FROM {s}sent_key;
DROP TABLE {s}sent_key;
ALTER TABLE {s}sent_key_by_origin RENAME TO {s}sent_key;
CREATE INDEX {s}sent_key_by_time ON {s}sent_key (ring, at);
