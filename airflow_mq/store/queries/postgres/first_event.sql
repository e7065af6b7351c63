-- The first event since a time. Takes no lock.
SELECT e.id FROM {s}event e WHERE e.ring = %(ring)s AND e.at >= %(since)s ORDER BY e.at LIMIT 1
