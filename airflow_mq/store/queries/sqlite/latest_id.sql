-- The last id that was given out. Takes no lock.
SELECT c.last FROM {s}counter c
