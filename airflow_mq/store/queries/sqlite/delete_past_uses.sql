-- Forget who needed these blobs. Under their locks.
DELETE FROM {s}blob_use WHERE hash = :hash AND until <= :now
