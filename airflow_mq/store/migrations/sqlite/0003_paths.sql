-- Groups of origins, for rings with paths.

CREATE TABLE {s}branch (
    ring INTEGER NOT NULL,
    -- Ends in a slash, but for the outermost group, which has the empty path.
    path TEXT NOT NULL,
    deficit INTEGER NOT NULL,
    level INTEGER NOT NULL,
    -- Of the outermost group: who comes first in the next block.
    owed TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (ring, path)
) STRICT;

-- Whether all below an origin is paused with it.
ALTER TABLE {s}pause ADD COLUMN below INTEGER NOT NULL DEFAULT 0;
CREATE INDEX {s}pause_of_groups ON {s}pause (ring) WHERE below;
