-- An upload is a blob now, or nothing any more. Takes no lock that anybody else waits for.
UPDATE {s}upload SET until = :until WHERE id = :id
