-- Set a ring differently. Under the ring's lock.
UPDATE {s}ring SET config = :config WHERE id = :ring
