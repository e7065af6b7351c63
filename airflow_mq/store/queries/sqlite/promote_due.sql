-- Mail that is due joins its queue, as if it were sent now. The transaction is the only one that writes.
INSERT INTO {s}mail (id, size, items, ring, more, origin, lengths, attributes, heap)
SELECT :id, d.size, d.items, d.ring, d.more, d.origin, d.lengths, d.attributes, d.heap FROM {s}delayed d
WHERE d.id = :was
