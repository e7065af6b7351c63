-- Begin an upload. Takes no lock that anybody else waits for.
INSERT INTO {s}upload (id, until, path) VALUES (:id, :until, :path)
