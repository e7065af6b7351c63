-- How many messages of an origin are not due yet, and when the first of them is. Takes no lock.
SELECT coalesce(sum(d.items), 0)::bigint, min(d.due) FROM {s}delayed d
WHERE d.ring = %(ring)s AND d.origin = %(origin)s AND d.due > %(now)s
