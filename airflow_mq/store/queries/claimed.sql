-- Origins of which anything is in flight. Takes no lock.
SELECT DISTINCT c.origin FROM {s}claim c WHERE c.ring = :ring AND NOT c.by_hand
