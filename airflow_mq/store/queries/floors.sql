-- The ring's floors, and how often it changed. Takes no lock.
SELECT s.ticket_floor, s.look_floor, s.version FROM {s}state s WHERE s.ring = :ring
