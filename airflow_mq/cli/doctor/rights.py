"""Checks of the rights on a store's schema on PostgreSQL: which roles have more than they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...store.roles import SENT, is_secret
from .findings import Finding, fine, note, wrong

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

    Connection: TypeAlias = psycopg.Connection[TupleRow]

#: Rights that let a role run code as others or fake the version of the store: `_RUNNING_CODE` reports them.
_REPORTED = "TRIGGER"
_WRITING = {"INSERT", "UPDATE", "DELETE", "TRUNCATE"}
#: The right to see how many messages were stored.
_RECEIPT = ("SELECT", "stored")
#: Tables that decide about rights and versions, and what a role that may write them can do.
_DECIDING = {"migration": "may write the table of applied migrations", "sender": "may grant rights to send"}

#: Privileges of other roles on the schema: CREATE there, TRIGGER on any table, writing on the tables that decide.
_RUNNING_CODE = """
WITH granted AS (
    SELECT a.privilege_type AS kind, '' AS place, a.grantee, n.nspowner AS owner
    FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = %(schema)s AND a.privilege_type = 'CREATE'
    UNION ALL
    SELECT a.privilege_type, c.relname, a.grantee, c.relowner
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a
    WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND (
        a.privilege_type = 'TRIGGER'
        OR c.relname = ANY(%(deciding)s) AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
    )
), named AS (
    SELECT g.kind, g.place, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(g.grantee)::text END AS role
    FROM granted g
    WHERE g.grantee <> g.owner
    AND (g.place = ANY(%(deciding)s) OR g.grantee <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user))
)
SELECT string_agg(kind, ', ' ORDER BY kind), place, role, CASE role WHEN 'PUBLIC' THEN role ELSE quote_ident(role) END
FROM named GROUP BY kind <> 'TRIGGER', place, role ORDER BY place, role
"""

#: Rights of other roles on tables and their columns; column '' is the whole table.
_ON_TABLES = """
SELECT c.relname::text, '', a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(g.rolname) END
FROM pg_class c CROSS JOIN aclexplode(c.relacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner
UNION
SELECT c.relname, t.attname, a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(g.rolname) END
FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN aclexplode(t.attacl) a
LEFT JOIN pg_roles g ON g.oid = a.grantee
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner
"""

#: Functions of the schema that PUBLIC may execute.
_FOR_PUBLIC = """
SELECT DISTINCT p.proname::text
FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
WHERE p.pronamespace = %(schema)s::regnamespace AND a.grantee = 0 ORDER BY 1
"""

#: Senders, and the roles with rights on tables that they are members of. NULL if the role was dropped.
_SENDERS = """
SELECT s.role::oid::int8, quote_ident(r.rolname), array_agg(DISTINCT quote_ident(g.rolname)) FILTER (WHERE EXISTS (
    SELECT FROM pg_class c WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind = 'r'
    AND has_table_privilege(g.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE')))
FROM {}.sender s LEFT JOIN pg_roles r ON r.oid = s.role
LEFT JOIN pg_auth_members m ON m.member = r.oid LEFT JOIN pg_roles g ON g.oid = m.roleid GROUP BY 1, 2 ORDER BY 2, 1
"""


@dataclass(frozen=True)
class Right:
    """A privilege of a role on a table, or on one of its columns."""

    table: str
    column: str
    kind: str
    role: str


def look(connection: Connection, schema: str) -> Iterator[Finding]:
    """Yield the findings about rights."""
    yield from _running_code(connection, schema)
    found = [*_wide(connection, schema)]
    yield from found or [fine("grants", "no role has more rights on the tables than its kind needs")]


def _running_code(connection: Connection, schema: str) -> Iterator[Finding]:
    """Grants by which other roles run code with the rights of the store's users, or fake its version."""
    rows = connection.execute(_RUNNING_CODE, {"schema": schema, "deciding": [*_DECIDING]}).fetchall()
    for kind, table, role, quoted in rows:
        name = f"{schema}.{table}" if table else f"SCHEMA {schema}"
        revoke = f"REVOKE {kind} ON {name} FROM {quoted}"
        if kind == "TRIGGER":
            yield wrong("rights", f"{role} may put triggers, which run with the rights of senders, on {name}", revoke)
        elif table:
            yield note("rights", f"{role} {_DECIDING[table]}", revoke)
        else:
            yield wrong("rights", f"{role} may create tables and functions in the schema of the store", revoke)
    if not rows:
        yield fine("rights", f"no other role may create anything in the schema {schema}")


def _wide(connection: Connection, schema: str) -> Iterator[Finding]:
    place = {"schema": '"' + schema + '"'}
    by_role: dict[str, set[Right]] = defaultdict(set)
    for row in connection.execute(_ON_TABLES, place):
        by_role[row[3]].add(Right(*row))
    public = [one for one in by_role.pop("PUBLIC", ()) if one.kind != _REPORTED and not _decides(one)]
    if public:
        yield wrong("grants", f"every role may use {_tables(schema, public)}", _revoke(schema, public, "PUBLIC"))
    functions = [f"{schema}.{name}" for (name,) in connection.execute(_FOR_PUBLIC, place)]
    if functions:
        names = ", ".join(functions)
        yield wrong("grants", f"every role may execute {names}", f"REVOKE EXECUTE ON FUNCTION {names} FROM PUBLIC")
    senders = _sender_rows(connection, schema)
    yield from _senders(schema, senders, by_role)
    for role in sorted(by_role.keys() - {role for _, role, _ in senders}):
        secret = [one for one in by_role[role] if one.kind == "SELECT" and is_secret(one.table, one.column)]
        if secret and not any(one.table == "mail" and one.kind in _WRITING for one in by_role[role]):
            what = f"{role} may read payloads in {_tables(schema, secret)} and not write: a reader needs no payloads"
            yield note("grants", what, f"{_revoke(schema, secret, role)}, then airflow-mq store grant reader {role}")


def _sender_rows(connection: Connection, schema: str) -> list[TupleRow]:
    """Return the number, name and groups of each role with a grant to send, if this role may read the grants."""
    readable = "SELECT has_table_privilege(to_regclass(%s), 'SELECT')"
    if connection.execute(readable, (f'"{schema}".sender',)).fetchone() != (True,):
        return []
    return connection.execute(_SENDERS.format(f'"{schema}"').encode(), {"schema": f'"{schema}"'}).fetchall()


def _senders(schema: str, senders: list[TupleRow], by_role: dict[str, set[Right]]) -> Iterator[Finding]:
    """Yield the findings about roles with a grant to send."""
    for number, role, groups in senders:
        if role is None:
            yield note(
                "grants", f"a grant to send is left of a dropped role ({number})", f"airflow-mq store revoke {number}"
            )
            continue
        wide = [one for one in by_role[role] if not _sends(one) and one.kind != _REPORTED and not _decides(one)]
        if wide:
            what = f"{role} has a grant to send, and also rights on {_tables(schema, wide)}"
            yield wrong("grants", what, _revoke(schema, wide, role))
        if groups:
            names = ", ".join(groups)
            what = f"{role} has a grant to send, and also the rights on tables of {names}"
            yield wrong("grants", what, f"REVOKE {names} FROM {role}")


def _sends(right: Right) -> bool:
    """Return whether the function `send` needs a right."""
    column = right.column
    return right.table == "outbox" and (column in SENT if right.kind == "INSERT" else (right.kind, column) == _RECEIPT)


def _decides(right: Right) -> bool:
    return right.table in _DECIDING and right.kind in _WRITING


def _tables(schema: str, rights: Iterable[Right]) -> str:
    return ", ".join(sorted({f"{schema}.{one.table}" for one in rights}))


def _revoke(schema: str, rights: Collection[Right], role: str) -> str:
    """Return the statement that revokes rights on tables, which includes those on their columns."""
    kinds = ", ".join(sorted({one.kind for one in rights}))
    return f"REVOKE {kinds} ON {_tables(schema, rights)} FROM {role}"
