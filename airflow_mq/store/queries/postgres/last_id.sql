-- The last id drawn, and whether this transaction has a number of its own yet. Takes no lock.
SELECT {part last_drawn}, pg_current_xact_id_if_assigned() IS NOT NULL
