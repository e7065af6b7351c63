-- An upload becomes the blob of its hash, if it is the first. Waits for a commit of the same blob at most.
INSERT INTO {s}blob (hash, size, upload, at) VALUES (:hash, :size, :upload, :now) ON CONFLICT DO NOTHING
