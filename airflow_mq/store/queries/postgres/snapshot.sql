-- Transactions below the first number have all ended; the second is this one's own.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
