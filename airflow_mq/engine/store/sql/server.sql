-- The database server and its file: settings, dead rows, open transactions, and the rights of roles.

-- name: file (sqlite)
-- Return the journal mode of the file, its pages, the empty ones of them, and the bytes of a page.
SELECT m.journal_mode, p.page_count, f.freelist_count, s.page_size
FROM pragma_journal_mode m, pragma_page_count p, pragma_freelist_count f, pragma_page_size s

-- name: server_settings (postgres)
-- Return the values of some settings that other sessions get: this session's are set when it connects.
SELECT g.name, g.reset_val FROM pg_settings g WHERE g.name = ANY(:names::text[])

-- name: dead_rows (postgres)
-- Return the live and dead rows of each table, and when it was vacuumed; most dead rows first.
SELECT t.relname::text, t.n_live_tup, t.n_dead_tup, {at greatest(t.last_vacuum, t.last_autovacuum)}
FROM pg_stat_user_tables t WHERE t.schemaname = :schema ORDER BY t.n_dead_tup DESC

-- name: open_transactions (postgres)
-- Return the sessions of the server with an open transaction, and for how many seconds it has been open and idle; also
-- those that hold locks of this store without one. A transaction that was prepared has no session, and its name in place
-- of a program.
SELECT a.pid, coalesce(a.usename::text, '?'), coalesce(a.application_name, ''), coalesce(a.datname::text, '?'),
    coalesce(a.state, ''), extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.state_change))::float8,
    extract(epoch FROM clock_timestamp() - a.state_change)::float8
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.backend_type IN ('client backend', 'walsender')
    AND (a.xact_start IS NOT NULL OR a.state_change IS NOT NULL AND a.datname = current_database() AND EXISTS (
        SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory'
        AND l.classid IN ('{s}ring'::regclass, '{s}inbox_sum'::regclass)))
UNION ALL
SELECT NULL, p.owner::text, p.gid, p.database::text, 'prepared', s.age, s.age
FROM pg_prepared_xacts p, LATERAL (SELECT extract(epoch FROM clock_timestamp() - p.prepared)::float8 AS age) s
ORDER BY 6 DESC

-- name: replication_slots (postgres)
-- Return the replication slots that keep old rows, how many transactions they are behind, and whether they are read.
SELECT s.slot_name::text, coalesce(age(s.xmin), 0), s.active FROM pg_replication_slots s WHERE s.xmin IS NOT NULL

-- name: rights (postgres)
-- Return the rights of other roles than the owner: on the schema, its tables and views, their columns, and its functions.
-- A row has what the right is on, its name, the column, the kind, the role, its name quoted, and whether it is this user.
WITH place AS (
    SELECT 'schema' AS what, '' AS name, '' AS part, n.nspacl AS acl, n.nspowner AS owner
    FROM pg_namespace n WHERE n.nspname = :schema
    UNION ALL
    SELECT CASE c.relkind WHEN 'r' THEN 'table' ELSE 'view' END, c.relname, '', c.relacl, c.relowner
    FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = :schema AND c.relkind IN ('r', 'v')
    UNION ALL
    SELECT 'column', c.relname, t.attname, t.attacl, c.relowner
    FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid JOIN pg_attribute t ON t.attrelid = c.oid
    WHERE n.nspname = :schema AND c.relkind IN ('r', 'v')
    UNION ALL
    SELECT 'function', p.proname, '', coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner
    FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid WHERE n.nspname = :schema
), granted AS (
    SELECT o.what, o.name, o.part, a.privilege_type AS kind,
           CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee)::text END AS role
    FROM place o CROSS JOIN aclexplode(o.acl) a
    WHERE a.grantee <> o.owner
)
SELECT DISTINCT g.what, g.name, g.part, g.kind, g.role, CASE g.role WHEN 'PUBLIC' THEN g.role ELSE quote_ident(g.role) END,
       g.role = current_user
FROM granted g ORDER BY 2, 5, 4, 3

-- name: may_read (postgres)
-- Return whether this role may read a table, which exists: the reports or the grants to send.
SELECT has_table_privilege(to_regclass('{s}' || CAST(:table AS text)), 'SELECT')

-- name: sender_roles (postgres)
-- Return the number and the quoted name of each role with a grant to send, and the roles with rights on tables that it
-- is a member of. The name is NULL if the role was dropped.
SELECT s.role::oid::int8, quote_ident(r.rolname), array_agg(DISTINCT quote_ident(g.rolname)) FILTER (WHERE EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relkind = 'r'
    AND has_table_privilege(g.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE')))
FROM {s}sender s LEFT JOIN pg_roles r ON r.oid = s.role
LEFT JOIN pg_auth_members m ON m.member = r.oid LEFT JOIN pg_roles g ON g.oid = m.roleid GROUP BY 1, 2 ORDER BY 2, 1
