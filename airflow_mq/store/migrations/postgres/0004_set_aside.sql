-- Set-aside messages by when they arrived, by the first block that was planned after that, and by the block that set
-- them aside.
ALTER TABLE {s}aside ADD COLUMN arrived_at bigint NOT NULL DEFAULT 0, ADD COLUMN arrived_block bigint;
UPDATE {s}aside SET arrived_at = at;
CREATE INDEX aside_by_block ON {s}aside (ring, block, origin, page, item);
CREATE INDEX aside_by_first_block ON {s}aside (ring, arrived_block, origin, page, item);
