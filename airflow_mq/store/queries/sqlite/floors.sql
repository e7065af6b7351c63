-- The ring's floors. Takes no lock.
SELECT s.ticket_floor, s.look_floor FROM {s}state s WHERE s.ring = :ring
