-- Mail that is not due yet, of an origin. Takes no lock.
SELECT count(*), coalesce(sum(d.items), 0), coalesce(sum(d.size), 0) FROM {s}delayed d WHERE d.ring = :ring AND d.origin = :origin AND d.due > :now
