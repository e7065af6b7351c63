-- A block ends: settled or released. Under the ring's lock.
UPDATE {s}block SET state = %(state)s, ended_at = %(now)s, details = %(details)s::jsonb WHERE id = %(block)s AND state = 0
