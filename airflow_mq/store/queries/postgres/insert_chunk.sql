-- What was read so far of a payload. Takes no lock that anybody else waits for.
INSERT INTO {s}chunk (upload, seq, data)
SELECT %(upload)s, w.seq, w.data FROM unnest(%(seq)b::int[], %(data)b::bytea[]) AS w(seq, data)
