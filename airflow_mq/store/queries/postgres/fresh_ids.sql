-- New ids. Takes no lock.
SELECT nextval('{s}id_seq') FROM generate_series(1, %(count)s)
