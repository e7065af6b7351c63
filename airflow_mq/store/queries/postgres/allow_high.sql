-- Say that high messages are sent to a ring. Locks the ring's row of settings for a moment, the first time.
UPDATE {s}ring SET config = config || '{"high": true}'::jsonb
WHERE id = %(ring)s AND NOT coalesce((config ->> 'high')::boolean, false)
