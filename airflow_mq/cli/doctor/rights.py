"""Checks of the rights on a store's schema on PostgreSQL: which roles have more than they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from ...engine.store.roles import SENT, is_secret
from .findings import Finding, fine, note, wrong

if TYPE_CHECKING:
    from ...engine.store.server import Right, SenderRole, Server

#: Rights that let a role run code as others or fake the version of the store: `_running_code` reports them.
_REPORTED = "TRIGGER"
_WRITING = {"INSERT", "UPDATE", "DELETE", "TRUNCATE"}
#: The right to see how many messages were stored.
_RECEIPT = ("SELECT", "stored")
#: Tables that decide about rights and versions, and what a role that may write them can do.
_DECIDING = {"migration": "may write the table of applied migrations", "sender": "may grant rights to send"}


def look(server: Server, schema: str) -> Iterator[Finding]:
    """Yield the findings about rights."""
    yield from _running_code(server, schema)
    found = [*_wide(server, schema)]
    yield from found or [fine("grants", "no role has more rights on the tables than its kind needs")]


def _running_code(server: Server, schema: str) -> Iterator[Finding]:
    """Grants by which other roles run code with the rights of the store's users, or fake its version."""
    rows = server.rights_to_run_code(schema, _DECIDING)
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


def _wide(server: Server, schema: str) -> Iterator[Finding]:
    by_role: dict[str, set[Right]] = defaultdict(set)
    for right in server.rights_on_tables(schema):
        by_role[right.role].add(right)
    public = [one for one in by_role.pop("PUBLIC", ()) if one.kind != _REPORTED and not _decides(one)]
    if public:
        yield wrong("grants", f"every role may use {_tables(schema, public)}", _revoke(schema, public, "PUBLIC"))
    functions = [f"{schema}.{name}" for name in server.public_functions(schema)]
    if functions:
        names = ", ".join(functions)
        yield wrong("grants", f"every role may execute {names}", f"REVOKE EXECUTE ON FUNCTION {names} FROM PUBLIC")
    senders = server.sender_roles(schema)
    yield from _senders(schema, senders, by_role)
    for role in sorted(by_role.keys() - {role for _, role, _ in senders}):
        secret = [one for one in by_role[role] if one.kind == "SELECT" and is_secret(one.table, one.column)]
        if secret and not any(one.table == "inbox" and one.kind in _WRITING for one in by_role[role]):
            what = f"{role} may read payloads in {_tables(schema, secret)} and not write: a reader needs no payloads"
            yield note("grants", what, f"{_revoke(schema, secret, role)}, then airflow-mq store grant reader {role}")


def _senders(schema: str, senders: list[SenderRole], by_role: dict[str, set[Right]]) -> Iterator[Finding]:
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
