-- New ids. The transaction gets its number first, or a horizon could pass an id that it drew. Takes no lock.
SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('{s}id_seq') END FROM generate_series(1, %(count)s)
