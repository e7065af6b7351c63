-- Events of all queues, the latest first. Takes no lock.
SELECT e.id, e.origin, e.block, e.at, e.data FROM {s}event e WHERE e.ring = %(ring)s AND e.id < %(before)s ORDER BY e.id DESC LIMIT %(limit)s
