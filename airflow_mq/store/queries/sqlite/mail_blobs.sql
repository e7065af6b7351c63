-- Mail that refers to blobs. Takes no lock.
SELECT d.id, d.origin, d.attributes FROM {s}mail d
WHERE d.ring = :ring AND d.attributes <> x'' AND instr(d.attributes, CAST('"blobs":{' AS BLOB))
