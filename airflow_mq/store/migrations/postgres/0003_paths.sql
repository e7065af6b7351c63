-- Groups of origins, for rings with paths.

CREATE TABLE {s}branch (
    ring smallint NOT NULL,
    -- Ends in a slash, but for the outermost group, which has the empty path.
    path text COLLATE "C" NOT NULL,
    deficit bigint NOT NULL,
    level bigint NOT NULL,
    -- Of the outermost group: who comes first in the next block.
    owed text NOT NULL DEFAULT '',
    PRIMARY KEY (ring, path)
);

-- Whether all below an origin is paused with it.
ALTER TABLE {s}pause ADD COLUMN below boolean NOT NULL DEFAULT false;
CREATE INDEX pause_of_groups ON {s}pause (ring) WHERE below;
