"""`doctor`: problems of a store and its surroundings, and their remedies."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...engine.rules.errors import StoreError
from ...words import span, when
from ..command import command
from ..session import Session, store_now
from .findings import OK, WRONG, Finding, fine, note, wrong

if TYPE_CHECKING:
    from ...engine.queue import MessageQueue
    from ...engine.store import SchemaStatus

#: Seconds by which two clocks may differ without a note, and without a problem.
SKEW, MUCH_SKEW = 2.0, 30.0
#: The largest number of ready queues that are read.
LOOKED_AT = 100


@command(example="$ doctor")
def doctor(session: Session, args: Namespace) -> bool:
    """Diagnose a store and its surroundings, and print remedies.

    Checks the schema, the clocks, blocks past their deadline, who holds rings, bloat, and harmful settings. Writes
    nothing. Exit code 1 if anything is wrong.
    """
    from ...engine import store

    address = session.address()
    status = store.schema_status(address)
    found = [_schema(status)]
    if status.state == "current":
        with session.any_ring() as queue, session.out.progress("looking"):
            found += _look(queue)
    _tell(session, address.safe, found)
    return all(one.level != WRONG for one in found)


def _look(queue: MessageQueue) -> Iterator[Finding]:
    from ...engine.queue import MessageQueue

    yield _clock(queue)
    for name in queue.admin.rings():
        # Shares the connection, which the caller closes.
        yield from _ring(MessageQueue(queue.store, name))
    if queue.store.address.driver == "sqlite":
        from . import sqlite

        yield from sqlite.look(queue.store)
    else:
        from . import postgres

        yield from postgres.look(queue.store)


def _schema(status: SchemaStatus) -> Finding:
    try:
        status.require()
    except StoreError as error:
        what, _, do = str(error).partition("; ")
        return wrong("schema", what, do)
    return fine("schema", f"version {status.version}, as expected")


def _clock(queue: MessageQueue) -> Finding:
    before = time.time()
    theirs = store_now(queue).timestamp()
    after = time.time()
    skew = theirs - (before + after) / 2
    if abs(skew) - (after - before) / 2 <= SKEW:
        return fine("clock", "the store's clock and this machine's agree")
    text = f"the store's clock is {span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine's"
    do = "the store's clock is the one that counts; set both by the same time server, or deadlines will surprise people"
    return wrong("clock", text, do) if abs(skew) > MUCH_SKEW else note("clock", text, do)


def _ring(queue: MessageQueue) -> Iterator[Finding]:
    name, config = queue.ring, queue.config
    check, sound = f"ring {name}", True
    for warning in config.warnings():
        sound = False
        yield wrong(check, warning, f"see `airflow-mq ring show {name}`, then `airflow-mq ring change {name}`")
    # A shorter lease runs out during normal work.
    if config.lease < 30.0:
        sound = False
        yield wrong(
            check,
            f"a lease of {config.lease:g} seconds runs out when a job only starts slowly; its work is then done twice",
            f"airflow-mq ring change {name} --lease 900",
        )
    elif config.service_weight is not None and config.service_weight.time > config.lease * 1000:
        yield note(
            check,
            f"a block may cost {config.service_weight.time:,}, which as milliseconds is more than its lease of "
            f"{config.lease:g} seconds",
            "renew blocks while they work, or make the lease longer",
        )
    if sound:
        yield fine(check, "its settings go together")
    yield from _dead_blocks(queue)
    yield from _servers(queue)
    yield from _hold(queue)


def _servers(queue: MessageQueue) -> Iterator[Finding]:
    """Report which DAGs and programs service a ring, and which queues none of them can."""
    check, servers, config = f"servers of {queue.ring}", queue.inspect.servers(), queue.config
    for one in servers:
        limit = one.limit_in(config)
        takes = "all origins" if one.patterns is None else f"the origins {one.patterns}"
        limited = "no limit" if limit is None else f"a limit of {limit}"
        yield fine(check, f"{one.title} services {takes} with {limited}, last at {when(one.at)}")
    for overdue in queue.inspect.overdue(LOOKED_AT):
        yield (note if overdue.is_new else wrong)(check, overdue.sentence, overdue.remedy)
    if servers:
        for told in queue.inspect.stuck(LOOKED_AT):
            yield wrong(check, told.sentence, "; or ".join(told.remedies))


def _dead_blocks(queue: MessageQueue) -> Iterator[Finding]:
    now, check = store_now(queue), f"blocks of {queue.ring}"
    planned = queue.blocks.list("planned", limit=1000)
    dead = [block for block in planned if block.deadline <= now]
    for block in dead:
        if block.problem:
            yield wrong(
                check,
                f"block {block.id} ({block.messages:,} messages) cannot be settled: {block.problem}; its messages stay "
                "in flight, and other queues go on",
                "each plan and `airflow-mq ring housekeep` try again; install the latest airflow-mq, and report the "
                "error with the output of `airflow-mq check`",
            )
            continue
        yield wrong(
            check,
            f"block {block.id} ({block.messages:,} messages) is {span((now - block.deadline).total_seconds())} past "
            "its deadline; its queues wait for it",
            f"airflow-mq --ring {queue.ring} block release {block.token} (planning the next block does it, too)",
        )
    unapplied = queue.blocks.unapplied()
    for number, error in unapplied:
        yield wrong(
            check,
            f"block {number} has ended, and its result cannot be applied: {error}; its messages stay in flight, and "
            "other queues go on",
            "`airflow-mq ring housekeep` tries again; install the latest airflow-mq, and report the error with the "
            "output of `airflow-mq check`",
        )
    if not dead and not unapplied:
        yield fine(check, f"{len(planned):,} at work, none past its deadline")


def _hold(queue: MessageQueue) -> Iterator[Finding]:
    check, servicing = f"hold on {queue.ring}", queue.inspect.servicing()
    if servicing.held_until is None:
        return
    left = (servicing.held_until - servicing.now).total_seconds()
    # A service holds the ring for 30 seconds at a time.
    if left > 120.0:
        yield wrong(
            check,
            f"{servicing.holder} holds the ring for another {span(left)}, longer than any service does",
            "did the store's clock jump back? Look whether that process lives; nothing is serviced until then",
        )
    elif left > 0:
        yield note(
            check, f"{servicing.holder} holds the ring", "other services wait for it; if it hangs, end that process"
        )
    else:
        yield note(
            check, f"{servicing.holder} stopped without releasing the ring", "nothing: the next service takes over"
        )


def _tell(session: Session, where: str, found: list[Finding]) -> None:
    bad = sum(one.level == WRONG for one in found)
    session.out.value({"store": where, "ok": not bad, "findings": found})
    for one in found:
        if one.level == OK and session.out.quiet:
            continue
        session.out.line(f"{one.level:5}  {one.check}: {one.what}")
        if one.do:
            session.out.line(f"       -> {one.do}")
    session.out.remark(f"{bad} of {len(found)} findings want attention" if bad else "nothing is wrong")
    session.out.remark("`airflow-mq check` looks into what is stored")
