-- Blobs that may go, without those that somebody is about to refer to: nobody waits for anybody.
SELECT b.hash FROM {s}blob b WHERE b.hash = ANY(%(hash)b::text[]) FOR UPDATE SKIP LOCKED
