-- Charges: what queues paid for their messages, packed by save.

-- name: insert_charge
-- Write the charges of one save. Requires the ring lock, so that ids are in the order of commits.
INSERT INTO {s}charge (id, ring, block, server, at, data) VALUES (:id, :ring, :block, :server, :at, :data)

-- name: insert_charge (postgres)
INSERT INTO {s}charge (ring, block, server, at, data) VALUES (:ring, :block, :server, :at, :data)

-- name: charges
-- Return charges after an id, in order.
SELECT c.id, c.block, c.server, c.at, c.data FROM {s}charge c WHERE c.ring = :ring AND c.id > :after ORDER BY c.id LIMIT :limit
