-- Write single messages that processors sent, which refer to blobs. Under the ring's lock.
INSERT INTO {s}mail {rows ring, id bigint[], origin text[], size int[], attributes bytea[], heap bytea[]}
