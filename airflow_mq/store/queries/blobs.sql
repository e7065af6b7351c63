-- Blobs by their hashes, who refers to them, and how long they are kept for whoever uploaded them. Takes no lock.
SELECT b.hash, b.size, u.path, b.at,
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash AND r.until IS NULL),
    (SELECT max(r.until) FROM {s}blob_use r WHERE r.hash = b.hash AND r.until > :now)
FROM {s}blob b JOIN {s}upload u ON u.id = b.upload
WHERE b.hash > :after ORDER BY b.hash LIMIT :limit
