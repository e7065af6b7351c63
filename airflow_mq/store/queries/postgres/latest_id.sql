-- The last id that was given out. Takes no lock.
SELECT last_value FROM {s}id_seq
