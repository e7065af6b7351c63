-- Transactions below the first number have all ended; those from the second on have not begun.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
