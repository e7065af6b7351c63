-- Write what a block claimed, in the order of its visits. Under the ring's lock.
INSERT INTO {s}claim {rows ring, block bigint, by_hand boolean[], seq int[], origin text[], data bytea[]}
