-- Let every queue begin anew: paths were switched on or off. Under the ring's lock.
UPDATE {s}book SET deficit = 0 WHERE ring = %(ring)s AND deficit <> 0
