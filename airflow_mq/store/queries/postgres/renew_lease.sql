-- Hold the ring for longer, if it is still held.
UPDATE {s}state SET lease_until = %(until)s WHERE ring = %(ring)s AND lease_token = %(token)b
