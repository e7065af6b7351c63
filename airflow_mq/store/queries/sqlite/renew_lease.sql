-- Hold the ring for longer, if it is still held.
UPDATE {s}state SET lease_until = :until WHERE ring = :ring AND lease_token = :token
