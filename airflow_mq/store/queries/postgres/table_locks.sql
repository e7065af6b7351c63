-- Sessions that hold, or wait for, a lock on one of our tables that no sender or planner can share. Takes no lock.
SELECT c.relname, l.pid, coalesce(a.application_name, '')
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE n.nspname = %(schema)s AND l.locktype = 'relation' AND l.pid <> pg_catalog.pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY l.granted DESC, l.pid LIMIT 1
