-- The last id given out, and whether this transaction has an id of its own yet. Takes no lock.
SELECT CASE WHEN q.is_called THEN q.last_value ELSE q.last_value - 1 END, pg_current_xact_id_if_assigned() IS NOT NULL
FROM {s}id_seq q
