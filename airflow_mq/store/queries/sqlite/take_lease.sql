-- Hold the ring across transactions. Under the ring's lock.
UPDATE {s}state SET lease_token = :token, lease_until = :until, lease_holder = :holder WHERE ring = :ring
