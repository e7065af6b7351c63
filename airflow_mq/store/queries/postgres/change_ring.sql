-- Set a ring differently. Under the ring's lock.
UPDATE {s}ring SET config = %(config)s::jsonb WHERE id = %(ring)s
