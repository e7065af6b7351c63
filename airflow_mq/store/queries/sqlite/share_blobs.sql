-- Which of these blobs are there.
SELECT b.hash FROM {s}blob b WHERE b.hash = :hash
