-- Tickets below the floor were given out. Under the ring's lock.
UPDATE {s}state SET ticket_floor = :ticket WHERE ring = :ring AND ticket_floor > :ticket
