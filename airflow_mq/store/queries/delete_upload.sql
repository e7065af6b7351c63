-- Forget an upload of which nothing is left. Takes no lock that anybody else waits for.
DELETE FROM {s}upload WHERE id = :id AND until <= :now
