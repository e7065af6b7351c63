-- How an origin is served.
INSERT INTO {s}standing (ring, origin, settings, guaranteed) VALUES (:ring, :origin, :settings, :guaranteed)
ON CONFLICT (ring, origin) DO UPDATE SET settings = excluded.settings, guaranteed = excluded.guaranteed
