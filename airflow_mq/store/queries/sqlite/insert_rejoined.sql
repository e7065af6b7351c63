-- Write messages that go back into their queues, as old as they are. Under the ring's lock.
INSERT INTO {s}mail (ring, id, origin, size, attributes, heap, sent_at)
VALUES (:ring, :id, :origin, :size, :attributes, :heap, :sent_at)
