-- Mail of all origins that is due and has not joined yet, without its bodies. Takes no lock.
SELECT d.origin, d.id, d.size, d.items, d.more, d.lengths, d.attributes FROM {s}delayed d
WHERE d.ring = :ring AND d.due <= :now ORDER BY d.due, d.id
