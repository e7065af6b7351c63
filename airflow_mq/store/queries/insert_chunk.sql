-- What was read so far of a payload. Takes no lock that anybody else waits for.
INSERT INTO {s}chunk {rows upload, seq int[], data bytea[]}
