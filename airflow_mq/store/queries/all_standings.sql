-- All that is set for origins. Takes no lock.
SELECT t.origin, t.settings FROM {s}standing t WHERE t.ring = :ring
