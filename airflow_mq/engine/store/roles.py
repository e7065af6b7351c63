"""Database roles: the least rights that installing, using, sending to and reading a store on PostgreSQL need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from psycopg.sql import SQL, Composable, Composed, Identifier
from psycopg.sql import Literal as SqlLiteral

from ..rules.errors import InvalidInput, StoreReadOnly, UnknownRing
from ..rules.patterns import Permit
from . import postgres
from .address import StoreAddress
from .schema import schema_status

Kind = Literal["installer", "runtime", "sender", "reader"]
Priority = Literal["regular", "high"]
#: Columns that readers do not get. A block's token is of no use without the rights to write.
_SECRET = {"inbox": {"heap"}, "delayed": {"heap"}, "ring_state": {"lease_token"}}
#: Tables that readers do not get at all.
_UNREADABLE = ("chunk", "upload", "outcome", "sent_key", "sender")
_FUNCTIONS = ("send", "send_many")
#: Functions that readers, and senders with rights on the tables, get: they read what they may read themselves.
_COUNTING = ("add_up", "fullness", "stored_origins", "unpacked_numbers")
#: Columns of the view that these functions insert into. A role that could set the others would choose who it is.
SENT = ("ring", "origins", "payloads", "keys", "headers", "weight", "not_before", "expires", "priority")


@dataclass(frozen=True)
class SenderGrant:
    """Origins and priorities that a role may send with to a ring."""

    role: str
    ring: str
    #: Shell patterns, separated by `|`.
    origins: str
    priority: Priority


def grant(
    address: StoreAddress,
    kind: Kind,
    role: str,
    *,
    ring: str = "default",
    origins: str = "*",
    priority: Priority = "high",
) -> list[str]:
    """Create a role unless it exists, and grant it what its kind needs; return the statements that ran.

    :param origins: sender: shell patterns of origins, separated by `|`, with the wildcards `*` and `?`.
    :param priority: sender: the highest priority that the role may send with.
    """
    schema_status(_of_postgres(address)).require()
    with postgres.translated(), postgres.connect(address) as connection, connection.transaction():
        statements = list(_statements(connection, address.schema, kind, role))
        if kind == "sender":
            statements += _sender_grant(connection, address, SenderGrant(role, ring, origins, priority))
        return _executed(connection, statements)


def revoke(address: StoreAddress, role: str) -> list[str]:
    """Revoke all rights of a role on the schema of a store; return the statements that ran."""
    schema = Identifier(_of_postgres(address).schema)
    name = Identifier(role)
    with postgres.translated(), postgres.connect(address) as connection, connection.transaction():
        if not _exists(connection, role):
            return _revoke_dropped(connection, schema, role)
        owner = _owner(connection, address.schema)
        if role == owner:
            raise InvalidInput(f"role {role!r} owns the tables: first `airflow-mq store grant installer` another role")
        later = Identifier(owner), schema, name
        statements = [
            SQL("DELETE FROM {}.sender WHERE role = {}::regrole").format(schema, _role_text(connection, role)),
            # This revokes the rights on columns, too.
            SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}").format(schema, name),
            SQL("REVOKE ALL ON ALL SEQUENCES IN SCHEMA {} FROM {}").format(schema, name),
            SQL("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {} FROM {}").format(schema, name),
            SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} REVOKE ALL ON TABLES FROM {}").format(*later),
            SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} REVOKE ALL ON SEQUENCES FROM {}").format(*later),
            SQL("REVOKE ALL ON SCHEMA {} FROM {}").format(schema, name),
        ]
        return _executed(connection, statements)


def _executed(connection: postgres.Connection, statements: Sequence[Composed]) -> list[str]:
    """Execute statements, and return their texts."""
    codes: list[str | None] = []
    connection.add_notice_handler(lambda notice: codes.append(notice.sqlstate))
    for statement in statements:
        connection.execute(statement)
    # PostgreSQL only warns about rights that this user can neither grant nor revoke.
    if not {"01006", "01007"}.isdisjoint(codes):
        raise StoreReadOnly("this user may not grant these rights, so nothing was changed; use the tables' owner")
    return [statement.as_string(connection) for statement in statements]


def _revoke_dropped(connection: postgres.Connection, schema: Identifier, number: str) -> list[str]:
    """Delete the grants of a dropped role, which has only its number left."""
    text = SQL("DELETE FROM {}.sender WHERE role::oid::text = {}").format(schema, SqlLiteral(number))
    if not connection.execute(text).rowcount:
        raise InvalidInput(f"unknown role {number!r}: expected a role of the database server")
    return [text.as_string(connection)]


def sender_grants(address: StoreAddress) -> list[SenderGrant]:
    """Return the grants of all senders of a store."""
    schema_status(_of_postgres(address)).require()
    text = SQL(
        "SELECT coalesce(o.rolname, g.role::oid::text), r.name, g.origins, CASE WHEN g.high THEN 'high' ELSE 'regular' "
        "END FROM {0}.sender g JOIN {0}.ring r ON r.id = g.ring LEFT JOIN pg_roles o ON o.oid = g.role ORDER BY 1, 2"
    ).format(Identifier(address.schema))
    with postgres.translated(), postgres.connect(address) as connection:
        return [SenderGrant(*row) for row in connection.execute(text)]


def like_patterns(origins: str) -> list[str]:
    """Return shell patterns, separated by `|`, as LIKE patterns; raise `InvalidInput` unless LIKE can express them."""
    Permit(origins)
    if "[" in origins:
        raise InvalidInput(f"invalid origins {origins!r:.80}: expected patterns with the wildcards * and ? only")
    escaped = origins.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_").split("|")


def is_secret(table: str, column: str = "") -> bool:
    """Return whether readers may not read a column; without a column, whether they may not read all columns."""
    return table in _UNREADABLE or (table in _SECRET and (not column or column in _SECRET[table]))


def _statements(connection: postgres.Connection, schema: str, kind: Kind, role: str) -> Iterator[Composed]:
    name, place = Identifier(role), Identifier(schema)
    if not _exists(connection, role):
        create = SQL("CREATE ROLE {} LOGIN").format(name)
        own = "SELECT FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolcreaterole)"
        if connection.execute(own).fetchone() is None:
            statement = create.as_string(connection)
            raise InvalidInput(f"unknown role {role!r}, and this user may not create roles: first run {statement}")
        yield create
    if kind == "installer":
        yield SQL("GRANT CONNECT, CREATE ON DATABASE {} TO {}").format(Identifier(connection.info.dbname), name)
        if _owner(connection, schema) != role:
            yield from _new_owner(connection, schema, name)
        return
    yield SQL("GRANT USAGE ON SCHEMA {} TO {}").format(place, name)
    for function in _COUNTING if kind in ("reader", "runtime") else ():
        yield SQL("GRANT EXECUTE ON FUNCTION {}.{} TO {}").format(place, Identifier(function), name)
    if kind == "reader":
        for table, columns in _readable(connection, schema):
            yield SQL("GRANT SELECT ({}) ON {}.{} TO {}").format(_joined(columns), place, Identifier(table), name)
        yield SQL("GRANT SELECT ON ALL SEQUENCES IN SCHEMA {} TO {}").format(place, name)
        return
    for function in _FUNCTIONS:
        yield SQL("GRANT EXECUTE ON FUNCTION {}.{} TO {}").format(place, Identifier(function), name)
    yield SQL("GRANT INSERT ({}), SELECT (stored) ON {}.outbox TO {}").format(_joined(SENT), place, name)
    if kind == "runtime":
        rights = SQL("SELECT, INSERT, UPDATE, DELETE")
        yield SQL("GRANT {} ON ALL TABLES IN SCHEMA {} TO {}").format(rights, place, name)
        yield SQL("REVOKE INSERT, UPDATE, DELETE ON {0}.migration, {0}.sender FROM {1}").format(place, name)
        yield SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {} TO {}").format(place, name)
        later = SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {}").format(
            Identifier(_owner(connection, schema)), place
        )
        yield SQL("{} GRANT {} ON TABLES TO {}").format(later, rights, name)
        yield SQL("{} GRANT USAGE, SELECT ON SEQUENCES TO {}").format(later, name)


def _new_owner(connection: postgres.Connection, schema: str, role: Identifier) -> Iterator[Composed]:
    """Yield statements that make a role the owner of a schema and of all that it holds."""
    place = Identifier(schema)
    granted = connection.execute(
        "SELECT pg_get_userbyid(d.defaclrole)::text, CASE d.defaclobjtype WHEN 'S' THEN 'SEQUENCES' ELSE 'TABLES' END, "
        "pg_get_userbyid(a.grantee)::text, string_agg(a.privilege_type, ', ') FROM pg_default_acl d "
        "JOIN pg_namespace n ON n.oid = d.defaclnamespace AND n.nspowner = d.defaclrole "
        "CROSS JOIN aclexplode(d.defaclacl) a WHERE n.nspname = %s AND a.grantee <> 0 "
        "AND d.defaclobjtype IN ('r', 'S') GROUP BY 1, 2, 3 ORDER BY 3, 2",
        (schema,),
    )
    for former, kind, grantee, rights in granted:
        yield SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} REVOKE ALL ON {} FROM {}").format(
            Identifier(former), place, SQL(kind), Identifier(grantee)
        )
        yield SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} GRANT {} ON {} TO {}").format(
            role, place, SQL(rights), SQL(kind), Identifier(grantee)
        )
    yield SQL("ALTER SCHEMA {} OWNER TO {}").format(place, role)
    rows = connection.execute(
        "SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.relname::text "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND (c.relkind IN ('r', 'v') OR c.relkind = 'S' "
        "AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))) ORDER BY 2",
        (schema,),
    )
    for kind, relation in rows:
        yield SQL("ALTER {} {}.{} OWNER TO {}").format(SQL(kind), place, Identifier(relation), role)
    functions = connection.execute(
        "SELECT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s "
        "ORDER BY 1",
        (schema,),
    )
    for (function,) in functions:
        yield SQL("ALTER FUNCTION {}.{} OWNER TO {}").format(place, Identifier(function), role)


def _sender_grant(connection: postgres.Connection, address: StoreAddress, wanted: SenderGrant) -> Iterator[Composed]:
    place = Identifier(address.schema)
    row = connection.execute(SQL("SELECT id FROM {}.ring WHERE name = %s").format(place), (wanted.ring,)).fetchone()
    if row is None:
        raise UnknownRing(f"unknown ring {wanted.ring!r}: create it with `airflow-mq ring create {wanted.ring}`")
    writes = SQL("SELECT FROM pg_roles WHERE rolname = {} AND has_table_privilege(oid, {}::regclass, 'INSERT')").format(
        wanted.role, SqlLiteral(f"{address.prefix}inbox")
    )
    if connection.execute(writes).fetchone() is not None:
        raise InvalidInput(
            f"role {wanted.role!r} may write the tables, so no grant restricts it: use another role, or first revoke "
            f"that right: `airflow-mq store revoke {wanted.role}`, if it is not that of a role of which it is a member"
        )
    if wanted.priority == "high":
        # Else the sender of the first high message would lock the row of the ring until its transaction ends.
        yield SQL(
            "UPDATE {}.ring SET config = config || '{{\"high\": true}}' "
            "WHERE id = {} AND NOT coalesce((config ->> 'high')::boolean, false)"
        ).format(place, row[0])
    yield SQL(
        "INSERT INTO {}.sender (role, ring, origins, patterns, high) VALUES ({}::regrole, {}, {}, {}, {}) "
        "ON CONFLICT (role, ring) DO UPDATE SET origins = excluded.origins, patterns = excluded.patterns, "
        "high = excluded.high"
    ).format(
        place,
        _role_text(connection, wanted.role),
        row[0],
        wanted.origins,
        like_patterns(wanted.origins),
        wanted.priority == "high",
    )


def _role_text(connection: postgres.Connection, role: str) -> Composable:
    """Return a role's quoted name as text, as a cast to `regrole` expects it."""
    return SqlLiteral(Identifier(role).as_string(connection))


def _joined(columns: Sequence[str]) -> Composable:
    return SQL(", ").join(map(Identifier, columns))


def _of_postgres(address: StoreAddress) -> StoreAddress:
    if address.driver == "sqlite":
        raise InvalidInput(
            "roles require a store on PostgreSQL: SQLite has none; restrict who may read and write the file instead"
        )
    return address


def _exists(connection: postgres.Connection, role: str) -> bool:
    return connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None


def _owner(connection: postgres.Connection, schema: str) -> str:
    text = "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = %s"
    (owner,) = connection.execute(text, (schema,)).fetchone() or ("",)
    return str(owner)


def _readable(connection: postgres.Connection, schema: str) -> list[tuple[str, list[str]]]:
    """Return the columns of each table that a reader gets."""
    rows = connection.execute(
        "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE n.nspname = %s AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped "
        "AND NOT c.relname = ANY(%s) GROUP BY 1 ORDER BY 1",
        (schema, list(_UNREADABLE)),
    ).fetchall()
    return [(table, [column for column in columns if column not in _SECRET.get(table, ())]) for table, columns in rows]
