-- Set a ring differently. Under the ring's lock. (A sender that says meanwhile that high messages are sent is heard.)
UPDATE {s}ring
SET config = %(config)s::jsonb || CASE WHEN (config ->> 'high')::boolean THEN '{"high": true}'::jsonb ELSE '{}'::jsonb END
WHERE id = %(ring)s
