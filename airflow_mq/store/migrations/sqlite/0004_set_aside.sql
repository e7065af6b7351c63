-- Set-aside messages by when they arrived, by the first block that was planned after that, and by the block that set
-- them aside.
ALTER TABLE {s}aside ADD COLUMN arrived_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {s}aside ADD COLUMN arrived_block INTEGER;
UPDATE {s}aside SET arrived_at = at;
CREATE INDEX {s}aside_by_block ON {s}aside (ring, block, origin, page, item);
CREATE INDEX {s}aside_by_first_block ON {s}aside (ring, arrived_block, origin, page, item);
