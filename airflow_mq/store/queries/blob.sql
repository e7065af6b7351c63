-- A blob by its hash: its size, and where its bytes lie. Takes no lock.
SELECT b.size, b.upload, u.path FROM {s}blob b JOIN {s}upload u ON u.id = b.upload WHERE b.hash = :hash
