-- Keep a blob until a time, if it is there. Shares its row with everybody but the sweep.
INSERT INTO {s}blob_use (mail, place, hash, until)
SELECT %(id)s, 0, b.hash, %(until)s FROM {s}blob b WHERE b.hash = %(hash)s FOR KEY SHARE
