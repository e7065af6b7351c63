-- How many messages are set aside, of at most so many. Takes no lock.
SELECT count(*) FROM (SELECT 1 FROM {s}aside a WHERE a.ring = :ring LIMIT :limit) n
