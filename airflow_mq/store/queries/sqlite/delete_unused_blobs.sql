-- Blobs that nobody needs are none any more. Under their locks.
DELETE FROM {s}blob WHERE hash = :hash AND NOT EXISTS (SELECT 1 FROM {s}blob_use u WHERE u.hash = :hash)
RETURNING upload
