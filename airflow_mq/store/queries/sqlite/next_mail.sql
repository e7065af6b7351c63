-- The sizes of the next mails, whatever ring they are of. Takes no lock.
SELECT m.id, m.ring, m.origin, m.items, m.size FROM {s}mail m WHERE m.id > :after ORDER BY m.id LIMIT :limit
