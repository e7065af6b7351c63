-- Mail that joins its queue later and refers to blobs. Takes no lock.
SELECT d.id, d.origin, d.attributes FROM {s}delayed d
WHERE d.ring = :ring AND d.attributes <> x'' AND instr(d.attributes, CAST('"blobs":{' AS BLOB))
