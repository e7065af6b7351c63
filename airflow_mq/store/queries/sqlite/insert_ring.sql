-- A new ring.
INSERT INTO {s}ring (name, config) VALUES (:name, :config) ON CONFLICT DO NOTHING RETURNING id
