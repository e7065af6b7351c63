-- The state of a new ring.
INSERT INTO {s}state (ring) VALUES (:ring)
