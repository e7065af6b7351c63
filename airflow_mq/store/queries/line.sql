-- All ready books of a ring with paths, by their tickets. Takes no lock.
SELECT b.ticket, b.origin, b.deficit FROM {s}book b WHERE b.ring = :ring AND b.ticket IS NOT NULL ORDER BY b.ticket
