-- A ring may be one shard of a sharded queue. It keeps the layout that it adopted, and the origins that stay with it
-- although the layout gives them to another shard: their messages are still here.

CREATE TABLE {s}shard (
    ring smallint PRIMARY KEY REFERENCES {s}ring (id) ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    version integer NOT NULL CHECK (version > 0),
    layout text COLLATE "C" NOT NULL
);

CREATE TABLE {s}pin (
    ring smallint NOT NULL REFERENCES {s}ring (id) ON DELETE CASCADE,
    origin text COLLATE "C" NOT NULL,
    PRIMARY KEY (ring, origin)
);
