-- Forget what is older than a ring keeps it.
DELETE FROM {s}event WHERE ring = :ring AND at <= :before
