-- The origins of the next mails, whatever ring they are of; then those of this ring. Takes no lock.
SELECT n.origin, n.id
FROM (SELECT m.ring, m.origin, m.id FROM {s}mail m WHERE m.id > :after ORDER BY m.id LIMIT :limit) n
WHERE n.ring = :ring
ORDER BY n.id
