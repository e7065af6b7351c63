-- Each origin has its own idempotency keys. Keys stored before this migration have no origin (the empty text, which
-- is no origin); their digests cover the origin, so they still refuse the same message of the same origin.

ALTER TABLE {s}sent_key ADD COLUMN origin text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE {s}sent_key ALTER COLUMN origin DROP DEFAULT;
ALTER TABLE {s}sent_key DROP CONSTRAINT sent_key_pkey;
ALTER TABLE {s}sent_key ADD PRIMARY KEY (ring, key, origin);
