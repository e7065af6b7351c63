-- Write single messages that processors sent, under ids drawn before. Under the ring's lock.
INSERT INTO {s}mail {rows ring, id bigint[], origin text[], size int[], heap bytea[]}
