-- How a ring is set, for who adds queues to one with a bound. Within a transaction, the only one that writes, it stays true.
SELECT r.config FROM {s}ring r WHERE r.id = :ring
