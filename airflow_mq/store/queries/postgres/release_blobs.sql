-- Messages that referred to blobs are gone. Under the ring's lock.
UPDATE {s}blob_use d SET until = 0
FROM unnest(%(mail)b::bigint[], %(place)b::int[]) AS w(mail, place)
WHERE d.mail = w.mail AND d.place = w.place AND d.until IS NULL
