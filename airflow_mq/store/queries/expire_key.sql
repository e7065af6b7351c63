-- Forget idempotency keys whose window is over.
DELETE FROM {s}sent_key WHERE ring = :ring AND at <= :before
