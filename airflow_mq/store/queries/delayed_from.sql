-- Mail that has not joined its queue yet, from here on. Takes no lock.
SELECT d.due, d.id, d.origin, d.size, d.items, d.more, d.lengths, d.attributes, d.heap FROM {s}delayed d
WHERE d.ring = :ring AND (d.due, d.id) > (:due, :after)
ORDER BY d.due, d.id LIMIT :limit
