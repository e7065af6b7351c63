-- Whoever uploaded a blob needs it no longer. Takes no lock that anybody else waits for.
UPDATE {s}blob_use SET until = 0 WHERE mail = :id AND until > 0
