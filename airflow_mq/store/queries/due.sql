-- Mail that is due.
SELECT d.id, d.due, d.size, d.items, d.more, d.origin, d.lengths, d.attributes, d.heap FROM {s}delayed d WHERE d.ring = :ring AND d.due <= :now ORDER BY d.due, d.id
