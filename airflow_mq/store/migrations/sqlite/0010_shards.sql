-- A ring may be one shard of a sharded queue. It keeps the layout that it adopted, and the origins that stay with it
-- although the layout gives them to another shard: their messages are still here.

CREATE TABLE {s}shard (
    ring INTEGER PRIMARY KEY REFERENCES {s}ring (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    layout TEXT NOT NULL
) STRICT;

CREATE TABLE {s}pin (
    ring INTEGER NOT NULL REFERENCES {s}ring (id) ON DELETE CASCADE,
    origin TEXT NOT NULL,
    PRIMARY KEY (ring, origin)
) STRICT;
