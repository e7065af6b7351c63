-- Groups that are paused with all below them. Takes no lock.
SELECT p.origin FROM {s}pause p WHERE p.ring = :ring AND p.below AND (p.until IS NULL OR p.until > :now)
