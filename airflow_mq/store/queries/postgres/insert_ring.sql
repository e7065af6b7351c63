-- A new ring.
INSERT INTO {s}ring (name, config) VALUES (%(name)s, %(config)s::jsonb) ON CONFLICT DO NOTHING RETURNING id
