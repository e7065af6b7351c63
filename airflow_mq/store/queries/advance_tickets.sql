-- Let the ring from a ticket on come first: the head is forced. Under the ring's lock.
UPDATE {s}book SET ticket = ticket - :shift WHERE ring = :ring AND ticket BETWEEN :ticket AND :top
