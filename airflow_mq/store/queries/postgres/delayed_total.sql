-- Mail that is not due yet, of an origin. Takes no lock.
SELECT count(*), coalesce(sum(d.items), 0), coalesce(sum(d.size), 0) FROM {s}delayed d WHERE d.ring = %(ring)s AND d.origin = %(origin)s AND d.due > %(now)s
