-- An upload goes on, unless it was given up. Takes no lock that anybody else waits for.
UPDATE {s}upload SET until = :until WHERE id = :id AND until > :now
