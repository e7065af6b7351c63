-- The last id drawn. The function reads the sequence under the lock of its buffer. A plain SELECT of the
-- sequence's row does not: now and then it meets the value that `nextval` puts there for the log, up to 32 ahead of
-- any id drawn so far, and ids that are drawn later would count as known to all.
coalesce(pg_catalog.pg_sequence_last_value('{s}id_seq'), 0)
