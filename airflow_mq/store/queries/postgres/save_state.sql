-- Write the ring's floors and marks, and count the change. Under the ring's lock.
UPDATE {s}state
SET version = version + 1, ticket_floor = %(ticket_floor)s, look_floor = %(look_floor)s, marks = %(marks)s::jsonb
WHERE ring = %(ring)s
