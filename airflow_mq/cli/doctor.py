"""`doctor`: problems of a store and its surroundings, and their remedies; `check`: its integrity.

A check has a name, a function that yields what is worth knowing, and the words for the case that it yields nothing.
"""

from __future__ import annotations

import shlex
import shutil
import stat
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import words
from ..engine.rules.characters import listed
from ..engine.rules.errors import MessageQueueError, StoreError
from ..engine.rules.units import time_text
from ..words import many, span, when
from .command import command
from .session import Session, store_now

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.queue.inspect.queues import QueueState
    from ..engine.queue.inspect.servicing import Servicing
    from ..engine.store import SchemaStatus, Store, StoreAddress
    from ..engine.store.server import RightRow
    from ..engine.store.unit import Unit

OK, NOTE, WRONG = "ok", "note", "wrong"
#: Seconds by which two clocks may differ without a note, and without a problem.
SKEW, MUCH_SKEW = 2.0, 30.0
#: The largest number of ready queues that are read.
LOOKED_AT = 100
#: Attempts of a first message without an outcome, from which on a person should look.
FAILING = 3
#: The part of a quota from which on a queue is nearly full.
NEARLY_FULL = 0.9
MIB = 1 << 20
#: The largest size of SQLite's write-ahead log. Without a long reader, SQLite starts it anew at about 4 MiB.
LARGE_LOG = 64 * MIB
#: How much of a file may be empty, in bytes and as a part of it.
FREE_BYTES, FREE_PART = 64 * MIB, 0.5
#: How little room there may be on the disk.
LITTLE_ROOM = 128 * MIB
#: Rows that are dead and not removed yet, from which on a table is called bloated.
DEAD_ROWS, DEAD_PER_LIVE = 100_000, 2
#: Seconds for which a transaction may stay open, and for which it may do nothing meanwhile.
OPEN, IDLE = 600.0, 60.0
#: Settings of PostgreSQL that must not be off.
SETTINGS = {
    "fsync": ("a power cut can destroy the whole database", "set fsync = on"),
    "full_page_writes": ("a power cut can destroy pages of the database", "set full_page_writes = on"),
    "synchronous_commit": (
        "a commit that was acknowledged can be lost in a power cut",
        "connections of airflow_mq set it on; for others set synchronous_commit = on, at least for this database",
    ),
    "autovacuum": ("deleted rows are never cleared away, and planning slows down", "set autovacuum = on"),
    "track_counts": ("autovacuum cannot find the tables that need it", "set track_counts = on"),
}
#: Rights to write a table.
WRITING = {"INSERT", "UPDATE", "DELETE", "TRUNCATE"}
#: Tables of PostgreSQL that decide about rights and versions, and what a role that may write them can do.
DECIDING = {"migration": "may write the table of applied migrations", "sender": "may grant rights to send"}


class Finding(NamedTuple):
    """A result of a check: its level, and the remedy of what needs a person's attention."""

    level: str
    what: str
    do: str = ""
    check: str = ""


@command(example="$ doctor")
def doctor(session: Session, args: Namespace) -> bool:
    """Diagnose a store and its surroundings, and print remedies.

    Checks the schema, the clocks, blocks past their deadline, who holds rings, bloat, and harmful settings. Writes
    nothing. Exit code 1 if anything is wrong.
    """
    from ..engine import store

    address = session.address()
    status = store.schema_status(address)
    found = _checked("schema", _schema(address, status), f"version {status.version}, as expected")
    try:
        with session.any_ring() as queue, session.out.progress("looking"):
            found += _look(queue)
    except MessageQueueError:
        if found[0].level == OK:
            raise
        found.append(Finding(NOTE, "left out, because the tables cannot be used as they are", check="other checks"))
    bad = sum(one.level == WRONG for one in found)
    session.out.value({"store": address.safe, "ok": not bad, "findings": found})
    print_findings(session, found)
    session.out.remark(f"{many(bad, 'problem')} found" if bad else "nothing is wrong")
    options = f"{session.options} --ring NAME".strip()
    session.out.remark(f"to check what is stored, ring by ring: airflow-mq check {options}")
    return not bad


@command(example="$ check || airflow-mq admin repair")
def check(session: Session, args: Namespace) -> bool:
    """Check everything that is stored, and print every violation.

    Writes nothing. Of external payloads, it compares the sizes and does not read the bytes. Exit code 1 if there are
    violations.
    """
    with session.queue() as queue, session.out.progress("checking") as tell:
        found = queue.check(lambda done, of: tell(f"{done:,} of {of:,} queues", done / of))
    if session.out.items(found, ("where", "what"), f"all is well in ring {queue.ring}"):
        session.out.remark(
            f"{many(len(found), 'violation')}; nothing was changed. Keep a copy of the store, and report them. "
            f"`{queue.session.cli('admin repair')}` shows which stranded messages it would return to their "
            "queues"
        )
    return not found


def print_findings(session: Session, findings: Iterable[Finding]) -> None:
    """Print findings for people, each with its remedy."""
    for one in findings:
        if one.level == OK and session.out.quiet:
            continue
        session.out.line(f"{one.level:5}  {one.check}: {one.what}")
        if one.do:
            session.out.line(f"       -> {one.do}")


def ring_findings(queue: MessageQueue, states: Sequence[QueueState], servicing: Servicing) -> Iterator[Finding]:
    """Yield the findings about one ring: its settings, blocks and servers, its first queues, and who holds it."""
    put_off = [state for state in queue.inspect.put_off(LOOKED_AT) if not state.paused]
    for check, found, fine in (
        ("ring {}", _settings(queue), "its settings go together"),
        ("blocks of {}", _blocks(queue), "none is past its deadline"),
        ("servers of {}", _servers(queue, states, servicing), ""),
        ("messages of {}", _failing(queue, "first", states), ""),
        ("messages of {}", _failing(queue, "delayed", put_off), ""),
        ("budgets of {}", _budgets(queue), ""),
        ("bills of {}", _bills(queue), ""),
        ("hold on {}", _hold(queue, servicing), ""),
        ("quotas of {}", _quotas(queue), ""),
    ):
        yield from _checked(check.format(queue.ring), found, fine)


def _checked(check: str, findings: Iterable[Finding], fine: str) -> list[Finding]:
    """Return the findings of a check; without one, that all is fine, where there are words for that."""
    found = list(findings) or [Finding(OK, fine)] * bool(fine)
    return [finding._replace(check=check) for finding in found]


def _look(queue: MessageQueue) -> Iterator[Finding]:
    from ..engine.queue import MessageQueue

    store = queue.store
    yield from _checked("clock", _clock(queue), "the store's clock and this machine's agree")
    for name in queue.admin.rings():
        # Shares the connection, which the caller closes.
        ring = MessageQueue(store, name)
        yield from ring_findings(ring, ring.inspect.ring(LOOKED_AT).queues, ring.inspect.servicing())
    with store.loose() as unit:
        for check, look_at, fine in _SQLITE if store.address.driver == "sqlite" else _POSTGRES:
            yield from _checked(check, look_at(store, unit), fine)


def _schema(address: StoreAddress, status: SchemaStatus) -> Iterator[Finding]:
    from ..engine import store

    try:
        status.require()
        found = store.differences(address)
    except StoreError as error:
        what, _, do = str(error).partition("; ")
        yield Finding(WRONG, what, do)
        return
    if found:
        do = "restore a backup, or make it as `airflow-mq store sql` prints it"
        yield Finding(WRONG, f"the tables are not as this version made them: {listed(found)}", do)


def _clock(queue: MessageQueue) -> Iterator[Finding]:
    before = time.time()
    theirs = store_now(queue).timestamp()
    after = time.time()
    skew = theirs - (before + after) / 2
    if abs(skew) - (after - before) / 2 > SKEW:
        yield Finding(
            WRONG if abs(skew) > MUCH_SKEW else NOTE,
            f"the store's clock is {span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine's",
            "the store's clock is the one that counts; set both by the same time server, or deadlines will surprise "
            "people",
        )


# A ring.


def _settings(queue: MessageQueue) -> Iterator[Finding]:
    cli, config = queue.session.cli, queue.config
    for warning in config.warnings():
        yield Finding(WRONG, warning, f"see `{cli('ring show')}`, then `{cli('ring change')}`")
    # A shorter lease runs out during normal work.
    if config.lease < 30.0:
        yield Finding(
            WRONG,
            f"a lease of {config.lease:g} seconds runs out when a job only starts slowly; its work is then done twice",
            cli("ring change --lease 900"),
        )
    elif config.service_weight is not None and config.service_weight.time > config.lease * 1000:
        yield Finding(
            NOTE,
            f"a block may take {time_text(config.service_weight.time)}, longer than its lease of {span(config.lease)}",
            "nothing, if DAGs process it, because their jobs renew it; otherwise make the lease longer",
        )


def _budgets(queue: MessageQueue) -> Iterator[Finding]:
    now = store_now(queue)
    for one in queue.inspect.budgets():
        ahead = (one.refilled_to - now).total_seconds()
        if ahead > SKEW:
            settings = [name.replace("_", "-") for name in ("rate", "rate_bytes", "burst", "burst_bytes")]
            yield Finding(
                WRONG if ahead > MUCH_SKEW else NOTE,
                f"the budget of {one.path} is refilled until {when(one.refilled_to)}, in {span(ahead)}: the store's "
                "clock was ahead, and the budget gets nothing until then",
                "if that is too long, unset and set it again, which fills it: "
                + queue.session.cli("queue set", one.path, " ".join(f"--unset {name}" for name in settings)),
            )


def _bills(queue: MessageQueue) -> Iterator[Finding]:
    today = store_now(queue).date()
    headers = queue.inspect.bill_headers(today)
    if headers and headers[-1].day >= today.isoformat():
        yield Finding(
            WRONG,
            "days are closed that are not over, because the store's clock was ahead: until they are over, no day is "
            "closed, and all charges go to the bill of the first open day",
            f"{queue.session.cli('report usage')}, which shows charges by the days on which they were made",
        )


def _blocks(queue: MessageQueue) -> Iterator[Finding]:
    now, cli = store_now(queue), queue.session.cli
    again = f"install the latest airflow-mq, and report the error with the output of `{cli('check')}`"
    for block in queue.blocks.each("planned"):
        named = f"block {block.id} ({many(block.messages, 'message')})"
        if block.deadline > now or not (block.messages or queue.blocks.get(block.token).claims):
            continue
        if block.problem:
            yield Finding(
                WRONG,
                f"{named} cannot be settled: {block.problem}; its messages stay in flight, and other queues go on",
                f"each plan and `{cli('ring housekeep')}` try again; {again}",
            )
        elif block.state_at(now) == "overdue":
            yield Finding(
                WRONG,
                f"{named} is {span((now - block.deadline).total_seconds())} past its deadline; its queues wait for it",
                f"{cli('block release', block.token)}; or start a run of the block DAG: each plan releases such blocks",
            )
    for number, error in queue.blocks.unapplied():
        yield Finding(
            WRONG,
            f"block {number} has ended, and its result cannot be applied: {error}; its messages stay in flight, and "
            "other queues go on",
            f"`{cli('ring housekeep')}` tries again; {again}",
        )


def _servers(queue: MessageQueue, states: Sequence[QueueState], servicing: Servicing) -> Iterator[Finding]:
    """Yield which DAGs and programs service a ring, and which queues none of them can."""
    for one in servicing.servers:
        limit = one.limit_in(queue.config)
        takes = "all origins" if one.patterns is None else f"the origins {one.patterns}"
        limited = "no limit" if limit is None else f"a limit of {limit}"
        yield Finding(OK, f"{one.title} services {takes} with {limited}, last at {when(one.at)}")
    for overdue in servicing.of_queues(states):
        yield Finding(NOTE if overdue.is_new else WRONG, overdue.sentence, overdue.remedy)
    for told in queue.inspect.stuck(states, servicing):
        yield Finding(WRONG, told.sentence, "; or ".join(told.remedies))


def _failing(queue: MessageQueue, place: str, states: Sequence[QueueState]) -> Iterator[Finding]:
    """Yield the queues whose first or delayed messages fail repeatedly: one finding for all that need the same."""
    from ..engine.queue.inspect.reasons import ERRORS

    failing = [state for state in states if state.attempts]
    paused = [state for state in failing if state.paused]
    often = [state for state in failing if state.attempts >= FAILING and not state.paused]
    seldom = [state for state in failing if state.attempts < FAILING and not state.paused]
    for level, alike in ((WRONG, often), (NOTE, seldom), (NOTE, paused)):
        if not alike:
            continue
        times = many(max(state.attempts for state in alike), "time")
        is_paused = "; paused" if alike is paused else ""
        if len(alike) == 1:
            what = f"the {place} message of {alike[0].name} was tried {times} without success{is_paused}"
            do = queue.session.cli("explain", alike[0].origin)
        else:
            what = f"the {place} messages of {len(alike)} queues were tried without success, up to {times}{is_paused}"
            what += f": {listed(alike, lambda state: state.name)}"
            do = queue.session.cli(ERRORS)
        yield Finding(level, what, do)


def _quotas(queue: MessageQueue) -> Iterator[Finding]:
    for one in queue.inspect.fullness() if queue.session.has_quotas else ():
        if one.part >= NEARLY_FULL:
            yield Finding(
                WRONG if one.stored >= one.quota else NOTE,
                f"{one.path} stores {words.size(one.stored)} of its quota of {words.size(one.quota)}; above it, sends "
                "are refused",
                f"{queue.session.cli('explain', one.path)}; to raise the quota: "
                + queue.session.cli("queue set", one.path, "--quota SIZE"),
            )


def _hold(queue: MessageQueue, servicing: Servicing) -> Iterator[Finding]:
    if servicing.held_until is None:
        return
    left, holder = (servicing.held_until - servicing.now).total_seconds(), servicing.holder
    # A service holds the ring for 30 seconds at a time.
    if left > 120.0:
        yield Finding(
            WRONG,
            f"{holder} holds the ring for another {span(left)}, longer than any service does",
            "did the store's clock jump back? If that process has ended, let others take the ring: "  # noqa: S608
            f"UPDATE {queue.store.address.prefix}ring_state SET lease_until = 0 WHERE ring = {queue.session.ring_id}",
        )
    elif left > 0:
        yield Finding(NOTE, f"{holder} holds the ring", "other services wait for it; if it hangs, end that process")
    else:
        yield Finding(NOTE, f"{holder} stopped without releasing the ring", "nothing: the next service takes over")


# A file of SQLite.


def _journal(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    mode, *_ = unit.server.file()
    if mode != "wal":
        yield Finding(
            WRONG,
            f"the journal mode is {mode!r}, so readers and writers wait for each other",
            "close all programs that use the file, and open it again; its folder has to be writable and on a local "
            "disk",
        )


def _log(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    log = Path(f"{store.address.file}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > LARGE_LOG:
        yield Finding(
            WRONG,
            f"the write-ahead log has grown to {words.size(size)}: a reader keeps it from shrinking, and slows reads",
            "end the program that keeps a transaction open on the file; the log then starts anew by itself",
        )


def _empty(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    _, pages, free, page_size = unit.server.file()
    if free * page_size >= FREE_BYTES and free >= FREE_PART * pages:
        yield Finding(
            WRONG,
            f"{words.size(free * page_size)} of the file's {words.size(pages * page_size)} are empty",
            "harmless, as it is used again; to get the room back while no program works: "
            f"sqlite3 {shlex.quote(str(store.address.file))} VACUUM",
        )


def _file_rights(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    path = store.address.file
    files = [Path(f"{path}{kind}") for kind in ("", "-wal", "-shm")]
    public = [str(file) for file in files if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
    if public:
        yield Finding(
            NOTE,
            f"other users of this machine can read or write {path.name}, as far as its folder lets them in",
            f"chmod 600 {' '.join(map(shlex.quote, public))}, unless they are meant to",
        )


def _disk(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    free = shutil.disk_usage(store.address.file.parent).free
    level, do = (OK, "") if free >= LITTLE_ROOM else (WRONG, "make room before enqueuing fails")
    yield Finding(level, f"{words.size(free)} are free on the disk of the store", do)


# A server of PostgreSQL.


def _server_settings(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    known = unit.server.settings(SETTINGS)
    for name, (what, do) in SETTINGS.items():
        if known.get(name) == "off":
            yield Finding(WRONG, f"{name} is off: {what}", do)


def _dead_rows(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    from ..engine.queue.values import moment

    schema = store.address.schema
    for table, live, dead, vacuumed in unit.server.dead_rows(schema):
        if dead >= DEAD_ROWS and dead >= DEAD_PER_LIVE * live:
            last = "never" if vacuumed is None else f"last on {moment(vacuumed):%Y-%m-%d %H:%M}"
            yield Finding(
                WRONG,
                f"table {table} has {dead:,} dead rows beside {live:,} live ones; vacuumed {last}",
                f"end transactions that stay open for long, then VACUUM {schema}.{table}; make autovacuum eager: "
                f"ALTER TABLE {schema}.{table} SET (autovacuum_vacuum_scale_factor = 0.02)",
            )


def _transactions(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    for pid, user, program, database, state, opened, idle in unit.server.transactions():
        if pid is None and opened >= IDLE:
            since = f"was prepared {span(opened)} ago as {program!r} and never ended"
            yield Finding(
                WRONG, f"a transaction {since}; it holds up all others", "COMMIT PREPARED or ROLLBACK PREPARED it"
            )
        is_idle = state.startswith("idle") and idle >= IDLE
        if pid is None or (opened < OPEN and not is_idle):
            continue
        doing = f"and has done nothing for {span(idle)}" if is_idle else f"({state})"
        does, lasts = "keeps a transaction open", "nothing that is deleted can be cleared away"
        if state == "idle":
            does, lasts = "holds locks of the store without a transaction", "new origins and sums of quotas may wait"
        yield Finding(
            WRONG,
            f"session {pid} of {user} {f'({program}) ' if program else ''}in {database} {does} for {span(opened)} "
            f"{doing}: until it ends {lasts}",
            f"end it in its program, or by SELECT pg_terminate_backend({pid}); set idle_in_transaction_session_timeout",
        )


def _slots(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    for name, age, active in unit.server.replication_slots():
        if not active:
            what = f"slot {name!r} has no reader and holds back clearing away {age:,} transactions"
            yield Finding(WRONG, what, f"start its reader, or SELECT pg_drop_replication_slot('{name}')")
        elif age > 1_000_000:
            yield Finding(NOTE, f"the reader of slot {name!r} is {age:,} transactions behind", "look at that reader")


def _running_code(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    """Yield grants by which other roles run code with the rights of the store's users, or fake its version."""
    schema = store.address.schema
    found: defaultdict[tuple[str, str, str, bool], list[str]] = defaultdict(list)
    for right in unit.server.rights(schema):
        runs = (right.what, right.kind) in (("schema", "CREATE"), ("table", "TRIGGER"))
        writes = right.what == "table" and right.name in DECIDING and right.kind in WRITING
        if (runs or writes) and (right.name in DECIDING or not right.is_own):
            found[right.name, right.role, right.quoted, right.kind == "TRIGGER"].append(right.kind)
    for (table, role, quoted, is_trigger), kinds in found.items():
        name = f"{schema}.{table}" if table else f"SCHEMA {schema}"
        level, what = WRONG, f"{role} may create tables and functions in the schema of the store"
        if is_trigger:
            what = f"{role} may put triggers, which run with the rights of senders, on {name}"
        elif table:
            level, what = NOTE, f"{role} {DECIDING[table]}"
        yield Finding(level, what, f"REVOKE {', '.join(kinds)} ON {name} FROM {quoted}")


def _grants(store: Store[Any], unit: Unit) -> Iterator[Finding]:
    """Yield the roles with more rights on the tables than their kind needs."""
    from ..engine.store.roles import is_secret

    schema, rights = store.address.schema, unit.server.rights(store.address.schema)
    by_role: defaultdict[str, set[RightRow]] = defaultdict(set)
    for right in rights:
        # The check of rights to run code reports the others.
        reported = right.kind == "TRIGGER" or (right.name in DECIDING and right.kind in WRITING)
        if right.what in ("table", "view", "column") and not reported:
            by_role[right.quoted].add(right)
    public = by_role.pop("PUBLIC", ())
    if public:
        yield Finding(WRONG, f"every role may use {_tables(schema, public)}", _revoke(schema, public, "PUBLIC"))
    functions = ", ".join(f"{schema}.{one.name}" for one in rights if one.what == "function" and one.role == "PUBLIC")
    if functions:
        do = f"REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC"
        yield Finding(WRONG, f"every role may execute {functions}", do)
    senders = unit.server.senders(schema)
    for number, sender, groups in senders:
        yield from _sender(schema, number, sender, groups, by_role[sender or ""])
    for role in sorted(by_role.keys() - {sender or "" for _, sender, _ in senders}):
        secret = [one for one in by_role[role] if one.kind == "SELECT" and is_secret(one.name, one.column)]
        if secret and not any(one.name == "inbox" and one.kind in WRITING for one in by_role[role]):
            what = f"{role} may read payloads in {_tables(schema, secret)} and not write: a reader needs no payloads"
            yield Finding(NOTE, what, f"{_revoke(schema, secret, role)}, then airflow-mq store grant reader {role}")


def _sender(
    schema: str, number: int, role: str | None, groups: list[str] | None, rights: Collection[RightRow]
) -> Iterator[Finding]:
    """Yield what is wrong with a role that has a grant to send.

    :param role: its quoted name; None if it was dropped
    :param groups: the roles with rights on tables that it is a member of
    """
    from ..engine.store.roles import SENT

    if role is None:
        what = f"a grant to send is left of a dropped role ({number})"
        yield Finding(NOTE, what, f"airflow-mq store revoke {number}")
        return
    needed = {("INSERT", column) for column in SENT} | {("SELECT", "stored")}
    wide = [one for one in rights if one.name != "outbox" or (one.kind, one.column) not in needed]
    if wide:
        what = f"{role} has a grant to send, and also rights on {_tables(schema, wide)}"
        yield Finding(WRONG, what, _revoke(schema, wide, role))
    if groups:
        names = ", ".join(groups)
        what = f"{role} has a grant to send, and also the rights on tables of {names}"
        yield Finding(WRONG, what, f"REVOKE {names} FROM {role}")


def _tables(schema: str, rights: Iterable[RightRow]) -> str:
    return ", ".join(sorted({f"{schema}.{one.name}" for one in rights}))


def _revoke(schema: str, rights: Collection[RightRow], role: str) -> str:
    """Return the statement that revokes rights on tables, which includes those on their columns."""
    kinds = ", ".join(sorted({one.kind for one in rights}))
    return f"REVOKE {kinds} ON {_tables(schema, rights)} FROM {role}"


_SQLITE: tuple[tuple[str, Callable[[Store[Any], Unit], Iterable[Finding]], str], ...] = (
    ("settings", _journal, "the write-ahead log is on"),
    ("log", _log, "the write-ahead log is small"),
    ("bloat", _empty, "little of the file is empty"),
    ("rights", _file_rights, "only the owner can read the file"),
    ("disk", _disk, ""),
)
_POSTGRES: tuple[tuple[str, Callable[[Store[Any], Unit], Iterable[Finding]], str], ...] = (
    ("settings", _server_settings, "none that hurt"),
    ("rights", _running_code, "no other role may create anything in the schema of the store"),
    ("grants", _grants, "no role has more rights on the tables than its kind needs"),
    ("bloat", _dead_rows, "no table has many dead rows"),
    ("transactions", _transactions, "none is open for long"),
    ("replication", _slots, ""),
)
