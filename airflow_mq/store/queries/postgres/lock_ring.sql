-- Hold the ring's books until the end of the transaction: locks the ring's row of state. The last
-- id is read before the next statement's snapshot is taken, which is what makes a mark of it.
SELECT s.version, s.ticket_floor, s.look_floor, s.marks, s.lease_token, s.lease_until, s.lease_holder,
       r.config, {part last_drawn}
FROM {s}state s
JOIN {s}ring r ON r.id = s.ring
WHERE s.ring = %(ring)s
FOR UPDATE OF s
