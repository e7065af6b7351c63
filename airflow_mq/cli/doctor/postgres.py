"""Checks of a store on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...engine.queue.values import moment
from ...words import span
from . import rights
from .findings import Finding, fine, note, wrong

if TYPE_CHECKING:
    from ...engine.store import Store
    from ...engine.store.server import Server

#: Rows that are dead and not removed yet, from which on a table is called bloated.
DEAD_ROWS, DEAD_PER_LIVE = 100_000, 2
#: Seconds for which a transaction may stay open, and for which it may do nothing meanwhile.
OPEN, IDLE = 600.0, 60.0

_SETTINGS = (
    ("fsync", "off", "a power cut can destroy the whole database", "set fsync = on"),
    ("full_page_writes", "off", "a power cut can destroy pages of the database", "set full_page_writes = on"),
    (
        "synchronous_commit",
        "off",
        "a commit that was acknowledged can be lost in a power cut",
        "connections of airflow_mq set it on; for others set synchronous_commit = on, at least for this database",
    ),
    ("autovacuum", "off", "deleted rows are never cleared away, and planning slows down", "set autovacuum = on"),
    ("track_counts", "off", "autovacuum cannot find the tables that need it", "set track_counts = on"),
)


def look(store: Store[Any]) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    schema = store.address.schema
    with store.loose() as unit:
        yield from _settings(unit.server)
        yield from rights.look(unit.server, schema)
        yield from _bloat(unit.server, schema)
        yield from _transactions(unit.server)
        yield from _prepared(unit.server)
        yield from _slots(unit.server)


def _settings(server: Server) -> Iterable[Finding]:
    known = server.settings([name for name, *_ in _SETTINGS])
    found = [
        wrong("settings", f"{name} is {bad}: {what}", do) for name, bad, what, do in _SETTINGS if known.get(name) == bad
    ]
    return found or [fine("settings", "none that hurt")]


def _bloat(server: Server, schema: str) -> Iterable[Finding]:
    rows, found = server.dead_rows(schema), []
    for table, live, dead, vacuumed in rows:
        if dead < DEAD_ROWS or dead < DEAD_PER_LIVE * live:
            continue
        last = "never" if vacuumed is None else f"last on {moment(vacuumed):%Y-%m-%d %H:%M}"
        bloated = wrong(
            "bloat",
            f"table {table} has {dead:,} dead rows beside {live:,} live ones; vacuumed {last}",
            f"end transactions that stay open for long, then VACUUM {schema}.{table}; make autovacuum eager: "
            f"ALTER TABLE {schema}.{table} SET (autovacuum_vacuum_scale_factor = 0.02)",
        )
        found.append(bloated)
    return found or [fine("bloat", f"{sum(row[2] for row in rows):,} dead rows in all, which is little")]


def _transactions(server: Server) -> Iterable[Finding]:
    rows, found = server.open_transactions(), []
    for pid, user, program, database, state, opened, idle in rows:
        is_idle = state.startswith("idle in transaction") and idle >= IDLE
        if opened < OPEN and not is_idle:
            continue
        doing = f"and has done nothing for {span(idle)}" if is_idle else f"({state})"
        kept_open = wrong(
            "transactions",
            f"session {pid} of {user} {f'({program}) ' if program else ''}in {database} keeps a transaction open for "
            f"{span(opened)} {doing}: until it ends nothing that is deleted can be cleared away",
            f"end it in its program, or by SELECT pg_terminate_backend({pid}); set idle_in_transaction_session_timeout",
        )
        found.append(kept_open)
    return found or [fine("transactions", f"{len(rows):,} open beside this one, none for long")]


def _prepared(server: Server) -> Iterator[Finding]:
    for name, age in server.prepared_transactions():
        if age >= IDLE:
            yield wrong(
                "transactions",
                f"a transaction was prepared {span(age)} ago as {name!r} and never ended; it holds up all others",
                "COMMIT PREPARED or ROLLBACK PREPARED it",
            )


def _slots(server: Server) -> Iterator[Finding]:
    for name, age, active in server.replication_slots():
        if not active:
            yield wrong(
                "replication",
                f"slot {name!r} has no reader and holds back clearing away {age:,} transactions",
                f"start its reader, or SELECT pg_drop_replication_slot('{name}')",
            )
        elif age > 1_000_000:
            yield note(
                "replication", f"the reader of slot {name!r} is {age:,} transactions behind", "look at that reader"
            )
