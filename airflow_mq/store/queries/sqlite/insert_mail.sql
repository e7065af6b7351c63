-- What a call sent. The transaction is the only one that writes.
INSERT INTO {s}mail (id, size, items, ring, more, origin, lengths, attributes, heap)
VALUES (:id, :size, :items, :ring, :more, :origin, :lengths, :attributes, :heap)
