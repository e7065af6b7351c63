-- The database itself: schema version, identity and locks.

-- name: schema_version
-- Return the version of the schema, and the name of its first migration. No migration leads on from an unreleased one.
SELECT max(m.version), min(m.name) FROM {s}migration m

-- name: database (postgres)
-- Return the identity of the database: two connections with the same identity lead to the same database.
SELECT d.oid::bigint, {at pg_postmaster_start_time()}
FROM pg_database d WHERE d.datname = current_database()

-- name: table_locks (postgres)
-- Return the session that holds or awaits a lock on a table of the queue that senders and planners cannot share.
SELECT c.relname, l.pid, coalesce(a.application_name, '')
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE n.nspname = :schema AND l.locktype = 'relation' AND l.pid <> pg_catalog.pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY l.granted DESC, l.pid LIMIT 1
