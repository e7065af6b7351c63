-- Ready books before a ticket, in order. Takes no lock.
SELECT b.origin FROM {s}book b WHERE b.ring = :ring AND b.ticket < :ticket ORDER BY b.ticket, b.origin
