-- Hold the ring across transactions. Under the ring's lock.
UPDATE {s}state SET lease_token = %(token)b, lease_until = %(until)s, lease_holder = %(holder)s WHERE ring = %(ring)s
