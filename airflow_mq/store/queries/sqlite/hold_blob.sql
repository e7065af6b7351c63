-- Keep a blob until a time, if it is there.
INSERT INTO {s}blob_use (mail, place, hash, until) SELECT :id, 0, b.hash, :until FROM {s}blob b WHERE b.hash = :hash
