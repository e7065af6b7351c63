-- All books by name. Takes no lock.
SELECT b.origin FROM {s}book b WHERE b.ring = %(ring)s AND b.origin > %(after)s ORDER BY b.origin LIMIT %(limit)s
