-- Forget who needed these blobs. Under their locks.
DELETE FROM {s}blob_use WHERE hash = ANY(%(hash)b::text[]) AND until <= %(now)s
