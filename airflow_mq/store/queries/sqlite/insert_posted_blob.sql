-- Write single messages that processors sent, which refer to blobs. Under the ring's lock.
INSERT INTO {s}mail (ring, id, origin, size, attributes, heap) VALUES (:ring, :id, :origin, :size, :attributes, :heap)
