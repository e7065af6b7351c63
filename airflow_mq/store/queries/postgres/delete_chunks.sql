-- Remove some of the bytes of an upload that was given up. Takes no lock that anybody else waits for.
DELETE FROM {s}chunk
WHERE upload = %(upload)s AND seq IN (SELECT c.seq FROM {s}chunk c WHERE c.upload = %(upload)s ORDER BY c.seq LIMIT %(limit)s)
