-- The ring's state; the transaction is the only one that writes.
SELECT s.version, s.ticket_floor, s.look_floor, '', s.lease_token, s.lease_until, s.lease_holder,
       r.config, (SELECT last FROM {s}counter)
FROM {s}state s
JOIN {s}ring r ON r.id = s.ring
WHERE s.ring = :ring
