-- How many ready books of a priority stand before a ticket, and from it on. Takes no lock.
SELECT count(CASE WHEN b.ticket < :ticket THEN 1 END), count(*), min(b.ticket), max(b.ticket)
FROM {s}book b WHERE b.ring = :ring AND b.ticket BETWEEN :low AND :top
