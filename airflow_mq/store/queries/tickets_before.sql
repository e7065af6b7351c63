-- Ready books of a priority before a ticket, in order. Takes no lock.
SELECT b.origin FROM {s}book b WHERE b.ring = :ring AND b.ticket < :ticket AND b.ticket >= :low ORDER BY b.ticket, b.origin
