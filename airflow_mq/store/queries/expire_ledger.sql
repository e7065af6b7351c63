-- Forget what is older than a ring keeps it.
DELETE FROM {s}ledger WHERE ring = :ring AND at <= :before
