-- Keep events, packed, in the order in which they happened. Under the ring's lock.
INSERT INTO {s}event (id, ring, block, at, origin, events, data)
VALUES (:id, :ring, :block, :at, :origin, :events, :data)
