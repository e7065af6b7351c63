-- Mail that joins its queue later. The transaction is the only one that writes.
INSERT INTO {s}delayed (id, due, size, items, ring, more, origin, lengths, attributes, heap)
VALUES (:id, :due, :size, :items, :ring, :more, :origin, :lengths, :attributes, :heap)
