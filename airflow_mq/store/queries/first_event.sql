-- The first event since a time. Takes no lock.
SELECT e.id FROM {s}event e WHERE e.ring = :ring AND e.at >= :since ORDER BY e.at, e.id LIMIT 1
