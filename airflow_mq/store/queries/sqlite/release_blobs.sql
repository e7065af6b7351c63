-- Messages that referred to blobs are gone. Under the ring's lock.
UPDATE {s}blob_use SET until = 0 WHERE mail = :mail AND place = :place AND until IS NULL
