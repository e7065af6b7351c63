-- How an origin is served.
INSERT INTO {s}standing (ring, origin, settings, guaranteed) VALUES (%(ring)s, %(origin)s, %(settings)s::jsonb, %(guaranteed)s)
ON CONFLICT (ring, origin) DO UPDATE SET settings = excluded.settings, guaranteed = excluded.guaranteed
