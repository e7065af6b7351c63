-- Every blob, with the bytes that are stored of it and how many uses are written down. Takes no lock.
SELECT b.hash, b.size, b.upload, u.path,
    (SELECT coalesce(sum(length(c.data)), 0) FROM {s}chunk c WHERE c.upload = b.upload),
    (SELECT count(*) FROM {s}blob_use r WHERE r.hash = b.hash)
FROM {s}blob b JOIN {s}upload u ON u.id = b.upload
