-- Let others have the ring.
UPDATE {s}state SET lease_token = NULL, lease_until = 0, lease_holder = '' WHERE ring = %(ring)s AND lease_token = %(token)b
