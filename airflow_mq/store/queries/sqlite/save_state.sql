-- Write the ring's floors, and count the change. Under the ring's lock.
UPDATE {s}state
SET version = version + 1, ticket_floor = :ticket_floor, look_floor = :look_floor
WHERE ring = :ring
