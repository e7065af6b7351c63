"""Program that fills a store with the code of any schema version: `python writer.py ADDRESS`.

It runs beside the package of that version, so it imports nothing else of the tests. Names of methods changed between
versions, so it finds each by all its names. It prints what the tests need as JSON: the block in flight, the lease, the
payloads that must be processed, and the statements of senders.
"""

from __future__ import annotations

import inspect
import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

#: Settings of the ring `default` that an upgrade must keep. Blocks and keys live for eleven days.
SETTINGS = {"lease": 1e6, "key_window": 1e6, "max_attempts": 3, "rounds_per_block": 64}
SHARE, DELAY = 3, 3_600
BLOCK_KEY = "block in flight"
#: Messages of the ring `default` that are accepted and not processed: address, payload and idempotency key.
WAITING = (
    *(("acme", f"acme {number}", None) for number in range(6)),
    *(("globex", f"globex {number}", None) for number in range(3)),
    ("initech", "an order", "order-1"),
    ("initech", "another order", "order-2"),
    ("hooli", "paused", None),
)
HEAVY, DELAYED, HIGH, LARGE, HANDED_ON = "heavy", "delayed", "high", "large", "handed on"
PROCESSED, REPORTED, GROUPED = "processed", "reported", "grouped"


def method(queue: Any, *names: str) -> Any:
    """Return the method that this version has, or None."""
    for name in names:
        found = queue
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    return None


def fill(queue: Any, address: str) -> dict[str, Any]:
    """Write messages, settings and blocks; return what a test needs to go on."""
    from airflow_mq import Weight

    facts: dict[str, Any] = {"expected": [payload for _, payload, _ in WAITING]}
    method(queue, "change_ring", "admin.change_ring")(**SETTINGS)
    queue.enqueue_message("acme", PROCESSED.encode())
    queue.enqueue_message("initech", HEAVY.encode(), weight=Weight(10**12, 1), key="heavy")
    settle(queue, "settled block", [PROCESSED])
    facts["set aside"] = [HEAVY]
    method(queue, "set_origin", "admin.set_origin")("acme", share=SHARE)
    method(queue, "pause", "admin.pause")("hooli", "audit")
    facts["lease"] = lease(queue, facts)
    queue.enqueue_message("acme", REPORTED.encode())
    for origin, payload, key in WAITING[:9]:
        queue.enqueue_message(origin, payload.encode(), key=key)
    facts["block"] = leave_in_flight(queue)
    for origin, payload, key in WAITING[9:]:
        queue.enqueue_message(origin, payload.encode(), key=key)
    queue.enqueue_message("globex", DELAYED.encode(), not_before=DELAY)
    facts["expected"].append(DELAYED)
    send_specially(queue, facts)
    add_group(address, queue, facts)
    return facts


def settle(queue: Any, key: str, payloads: list[str]) -> None:
    """Plan a block, and settle it with these messages processed."""
    block = method(queue, "plan_block", "blocks.plan")(key)
    report(queue, block, payloads)
    method(queue, "settle_block", "blocks.settle")(block)


def report(queue: Any, block: Any, payloads: list[str]) -> None:
    """Report that messages of a block are processed."""
    from airflow_mq import Report

    wanted = [payload.encode() for payload in payloads]
    reports = [
        Report(batch.origin, batch.page, index, index)
        for batch in block.batches()
        for index, payload in zip(range(batch.first, batch.first + len(batch.payloads)), batch.payloads)
        if payload in wanted
    ]
    method(queue, "report", "blocks.report")(block, reports)


def leave_in_flight(queue: Any) -> str:
    """Plan a block, report on one of its messages, and return its token."""
    block = method(queue, "plan_block", "blocks.plan")(BLOCK_KEY)
    report(queue, block, [REPORTED])
    return str(block.token)


def lease(queue: Any, facts: dict[str, Any]) -> str | None:
    """Transfer a message to another origin, and lease one; return its token, if this version leases messages."""
    view = method(queue, "view", "leases.view")
    if view is None:
        return None
    queue.enqueue_message("umbrella", HANDED_ON.encode())
    queue.enqueue_message("umbrella", b"leased")
    token = view("umbrella").try_next()
    transfer = method(queue, "transfer", "leases.transfer")
    transfer(token, "wayne")
    facts["expected"] += [HANDED_ON, "leased"]
    return str(view("umbrella").try_next())


def send_specially(queue: Any, facts: dict[str, Any]) -> None:
    """Send a message of high priority and an external payload, if this version has them."""
    if "priority" in inspect.signature(queue.enqueue_message).parameters:
        queue.enqueue_message("globex", HIGH.encode(), priority="high")
        facts["expected"].append(HIGH)
    enqueue_external = method(queue, "enqueue_blob", "payloads.enqueue")
    if enqueue_external is not None:
        enqueue_external("globex", LARGE.encode() * 20)
        facts["large"] = LARGE * 20


def add_group(address: str, queue: Any, facts: dict[str, Any]) -> None:
    """Add a second ring with a settled block; with groups of origins, if this version has them."""
    from airflow_mq import MessageQueue, RingConfig

    options = {"paths": True} if "paths" in inspect.signature(RingConfig).parameters else {}
    method(queue, "create_ring", "admin.create_ring")("groups", RingConfig(**options))
    with MessageQueue(address, ring="groups") as groups:
        groups.enqueue_message("a/b", PROCESSED.encode())
        settle(groups, "settled block", [PROCESSED])
        groups.enqueue_message("a/b", GROUPED.encode())
        groups.enqueue_message("a/c", GROUPED.encode())
        if options:
            method(groups, "pause", "admin.pause")("a", "holidays", below=True)
    facts["groups"] = [GROUPED, GROUPED]


def senders(queue: Any) -> dict[str, list[str]]:
    """Return the statements of this version's senders. A statement of another transaction would disturb the ids."""
    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: queue.enqueue_message("acme", b"sent plainly"),
        "keyed": lambda: queue.enqueue_message("acme", b"sent with a key", key="key"),
        "many": lambda: queue.enqueue_messages("acme", [b"sent with others 1", b"sent with others 2"]),
    }
    statements = {}
    for name, call in calls.items():
        with recorded(queue) as statements[name]:
            call()
    return statements


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


#: By OID of a type, how a value that PostgreSQL receives in binary is read.
READ: dict[int, Callable[[bytes], object]] = {16: any, 21: _number, 23: _number, 25: bytes.decode}


@contextmanager
def recorded(queue: Any) -> Iterator[list[str]]:
    """Record statements with their values, until the context ends."""
    texts: list[str] = []
    connection = queue.store.connection()
    if isinstance(connection, sqlite3.Connection):
        connection.set_trace_callback(texts.append)
        yield texts
        connection.set_trace_callback(None)
        return
    import psycopg

    real = psycopg.Cursor.execute

    def execute(cursor: Any, query: Any, values: Any = None, **options: Any) -> Any:
        texts.append(psycopg.ClientCursor(cursor.connection).mogrify(query, values))
        return real(cursor, query, values, **options)

    def run_prepared(connection: Any, text: bytes, types: Any, values: Any) -> None:
        cursor = psycopg.ClientCursor(connection)
        plain = {str(place): READ.get(kind, bytes)(value) for place, (kind, value) in enumerate(zip(types, values), 1)}
        texts.append(cursor.mogrify(re.sub(rb"\$(\d+)", rb"%(\1)s", text), plain))
        real_run(connection, text, types, values)

    real_run: Any = getattr(type(connection), "run_prepared", None)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(psycopg.Cursor, "execute", execute))
        if real_run is not None:
            stack.enter_context(mock.patch.object(type(connection), "run_prepared", run_prepared))
        yield texts


def main(address: str) -> None:
    """Create a store, fill it, and print the facts; the second line holds the statements of senders."""
    from airflow_mq import MessageQueue
    from airflow_mq.store import parse, upgrade

    upgrade(parse(address))
    with MessageQueue(address) as queue:
        facts = fill(queue, address)
        facts["at"] = int(time.time() * 1_000_000)
        print(json.dumps(facts), flush=True)
        # The caller dumps the store now.
        sys.stdin.readline()
        print(json.dumps(senders(queue)))


if __name__ == "__main__":
    main(sys.argv[1])
