-- Blobs that nobody needs are none any more. Under their locks.
DELETE FROM {s}blob b
WHERE b.hash = ANY(%(hash)b::text[]) AND NOT EXISTS (SELECT FROM {s}blob_use u WHERE u.hash = b.hash)
RETURNING b.upload
