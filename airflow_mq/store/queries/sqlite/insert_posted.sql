-- Write single messages that processors sent, under ids drawn before. Under the ring's lock.
INSERT INTO {s}mail (ring, id, origin, size, heap)
VALUES (:ring, :id, :origin, :size, :heap)
