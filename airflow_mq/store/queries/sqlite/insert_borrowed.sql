-- A message that is handed on: mail without bytes of its own.
INSERT INTO {s}mail (id, size, ring, origin, attributes, heap)
VALUES (:id, :size, :ring, :origin, :attributes, x'')
