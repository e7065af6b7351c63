-- Bytes that belong to nothing. Takes no lock.
SELECT u.id, u.path FROM {s}upload u WHERE u.until <= :now ORDER BY u.until, u.id LIMIT :limit
