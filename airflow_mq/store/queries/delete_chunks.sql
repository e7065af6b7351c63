-- Remove some of the bytes of an upload that was given up. Takes no lock that anybody else waits for.
DELETE FROM {s}chunk
WHERE upload = :upload AND seq IN (SELECT c.seq FROM {s}chunk c WHERE c.upload = :upload ORDER BY c.seq LIMIT :limit)
