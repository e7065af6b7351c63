-- The last id drawn. Takes no lock.
SELECT {part last_drawn}
