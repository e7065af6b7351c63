-- Mail of an origin that is due and has not joined yet. Takes no lock.
SELECT d.origin, d.id, d.size, d.items, d.more, d.lengths, d.attributes, d.heap FROM {s}delayed d
WHERE d.ring = :ring AND d.due <= :now AND d.origin = :origin ORDER BY d.due, d.id
