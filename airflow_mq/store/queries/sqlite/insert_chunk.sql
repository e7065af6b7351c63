-- What was read so far of a payload. Takes no lock that anybody else waits for.
INSERT INTO {s}chunk (upload, seq, data) VALUES (:upload, :seq, :data)
