-- Which database this is: two connections that hear the same are to the same. Takes no lock.
SELECT d.oid::bigint, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
FROM pg_database d WHERE d.datname = current_database()
