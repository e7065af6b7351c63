-- Which of these blobs are there; they stay until the end of the transaction. Shares their rows with all but the sweep.
SELECT b.hash FROM {s}blob b WHERE b.hash = ANY(%(hash)b::text[]) ORDER BY b.hash FOR KEY SHARE
