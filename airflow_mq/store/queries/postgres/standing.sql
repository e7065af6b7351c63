-- How an origin is served. Takes no lock.
SELECT t.settings FROM {s}standing t WHERE t.ring = %(ring)s AND t.origin = %(origin)s
