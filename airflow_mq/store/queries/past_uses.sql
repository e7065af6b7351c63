-- Blobs that somebody needs no longer. Takes no lock.
SELECT DISTINCT p.hash FROM (
    SELECT u.hash FROM {s}blob_use u WHERE u.until <= :now ORDER BY u.until, u.hash LIMIT :limit
) AS p
