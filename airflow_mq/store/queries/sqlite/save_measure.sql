-- Add to what was measured. Under the ring's lock.
INSERT INTO {s}measure (ring, processor, origin, data) VALUES (:ring, :processor, :origin, :data)
ON CONFLICT (ring, processor, origin) DO UPDATE SET data = excluded.data
