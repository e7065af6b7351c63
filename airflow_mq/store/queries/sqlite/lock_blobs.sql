-- Blobs that may go. The transaction is the only one that writes.
SELECT b.hash FROM {s}blob b WHERE b.hash = :hash
