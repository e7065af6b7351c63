"""Damaged rows: reported by the call that reads them or by the check, without hanging."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, RingConfig, Weight, Yield
from airflow_mq.engine.queue.admin import insert_ring
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.errors import ConfigRefused, MessageQueueError, StoreCorrupt
from airflow_mq.engine.store import parse, upgrade

pytestmark = pytest.mark.timeout(600)

HEAVY = Weight(5_000, 0)
GARBAGE = [
    b"", b"\x00", b"\xff" * 40, b"=" + b"\xff" * 12, b"B\xff\xff\xff\x7f" + b"\x00" * 8, b"{}", b"[1]", b"null",
    b"not json", b"[[[[",
]  # fmt: skip
#: Marks a flipped last byte: the same length, and mostly right.
FLIPPED = b"flipped"
BYTES = [
    "book.ahead", "page.slices", "page.lengths", "page.marks", "page.notes", "inbox.lengths", "inbox.attributes",
    "inbox.heap", "claim.data", "outcome.data", "event.data", "charge.data", "ledger.data", "set_aside.weight", "set_aside.weight_limit",
    "set_aside.id",
]  # fmt: skip
NUMBERS = [
    "book.begin_page", "book.end_page", "book.pages", "book.messages", "book.size", "book.ticket", "book.floor",
    "page.items", "page.used", "page.first_index", "page.remaining", "page.remaining_size", "inbox.size", "inbox.items",
    "ring_state.ticket_floor", "ring_state.look_floor",
]  # fmt: skip
TEXTS = ["ring.config", "block.details", "setting.settings", "measure.data"]
TABLES = [
    "inbox", "delayed", "book", "page", "set_aside", "setting", "block", "claim", "outcome", "event", "charge", "ledger", "measure",
    "ring_state", "ring",
]  # fmt: skip


def run(queue: MessageQueue, text: str, *values: Any) -> int:
    """Execute a statement outside the queue and return its row count; `{s}` is the table prefix."""
    sqlite = queue.store.address.driver == "sqlite"
    text = text.replace("{s}", queue.store.prefix)
    if not sqlite:
        for value in values:
            text = text.replace("?", "%b" if isinstance(value, bytes) else "%s", 1)
    return int(queue.store.lent().connection.execute(text, values).rowcount)


def damage(queue: MessageQueue, place: str, value: Any) -> int:
    """Write a value into a column of all rows; return the row count."""
    table, _, column = place.partition(".")
    if value != FLIPPED:
        return run(queue, f"UPDATE {{s}}{table} SET {column} = ?", value)
    if queue.store.address.driver == "sqlite":
        flipped = f"CAST(substr({column}, 1, length({column}) - 1) || x'fe' AS BLOB)"
    else:
        flipped = f"set_byte({column}, length({column}) - 1, 254)"
    return run(queue, f"UPDATE {{s}}{table} SET {column} = {flipped} WHERE length({column}) > 0")


def furnish(queue: MessageQueue) -> str:
    """Store each kind of row: pages half done, set aside, claimed, reported, annotated; and inbox rows."""
    queue.admin.set_origin("a", share=2, most=Weight(900, 1 << 20))
    for origin in ("a", "b"):
        queue.enqueue_message(origin, b"heavy", weight=HEAVY, headers={"h": "1"})
        queue.enqueue_messages(origin, [b"light %d" % n for n in range(12)], headers={"h": "2"})
    queue.service_queues(lambda delivery: Yield() if delivery.payload == b"light 5" else None)
    block = queue.blocks.plan()
    measured = [Report("a", claim.runs[0].page, claim.runs[0].first, claim.runs[0].first, Done(used=Weight(1, 3)))
                for claim in block.claims if claim.origin == "a"]  # fmt: skip
    queue.blocks.report(block, measured)
    queue.blocks.settle(block)
    block = queue.blocks.plan()
    queue.blocks.report(block, [next(block.batches(["b"])).answers([Done(used=Weight(1, 3))] + [Yield()] * 3)[0]])
    for origin in ("a", "c"):
        queue.enqueue_messages(origin, [b"more %d" % n for n in range(9)])
    return block.token


def calls(queue: MessageQueue, token: str) -> list[Callable[[], Any]]:
    """Return calls of each operation, reads first."""
    return [
        queue.check,
        lambda: queue.footprints(),
        lambda: [queue.inspect.peek(origin) for origin in "abc"],
        lambda: queue.inspect.ring_order(),
        lambda: list(queue.inspect.events()),
        lambda: queue.inspect.ledger(),
        lambda: queue.set_aside.list(),
        lambda: queue.blocks.list(),
        lambda: list(queue.blocks.get(token).batches()),
        lambda: queue.inspect.fits(),
        lambda: queue.enqueue_message("d", b"always possible"),
        lambda: queue.blocks.plan(),
        lambda: queue.blocks.settle(token),
        lambda: queue.service_queues(lambda delivery: None),
        lambda: [queue.execute_overweight(aside.address, lambda delivery: None) for aside in queue.set_aside.list()],
        lambda: queue.sweep_queue("a"),
        lambda: queue.admin.force_set_head("c"),
        lambda: MessageQueue(queue.store, queue.ring),
        queue.check,
    ]


@pytest.fixture
def fresh(store_uri: str) -> Iterator[Callable[[], MessageQueue]]:
    """Return a function that deletes all rows and makes an empty ring."""
    upgrade(parse(store_uri))
    count = 0
    with MessageQueue(store_uri, busy_timeout=2) as first:

        def begin() -> MessageQueue:
            nonlocal count
            count += 1
            for table in TABLES:
                run(first, f"DELETE FROM {{s}}{table}")
            with first.store.writing() as unit:
                insert_ring(unit, f"r{count}", RingConfig(heap_size=64, service_weight=Weight(1_000, 1 << 20)))
            return MessageQueue(first.store, f"r{count}")

        yield begin


def is_noticed(queue: MessageQueue, token: str, where: str) -> bool:
    """Run all calls; return whether a call raised a named error or the check reported a problem."""
    noticed = False
    for number, call in enumerate(calls(queue, token)):
        try:
            answer = call()
        except MessageQueueError as error:
            noticed = True
            assert len(str(error)) > 10
        except Exception as error:
            raise AssertionError(f"{where}, call {number}: {type(error).__name__}: {error}") from error
        else:
            noticed = noticed or (number == 0 and bool(answer))
    return noticed


#: Undetectable damage: another payload, name, weight or answer of the same form, or an empty value in a
#: column that is mostly empty.
HARMLESS = {
    "inbox.heap": {FLIPPED}, "set_aside.id": {*GARBAGE, FLIPPED}, "set_aside.weight": {FLIPPED}, "set_aside.weight_limit": {FLIPPED},
    "event.data": {b"", FLIPPED}, "book.ahead": {b""}, "page.notes": {b"", b"{}"}, "page.marks": {b""},
    "inbox.attributes": {b"", b"{}"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("place", BYTES)
def test_damaged_bytes_are_noticed(fresh: Callable[[], MessageQueue], place: str) -> None:
    silent = set()
    for value in [*GARBAGE, FLIPPED]:
        queue = fresh()
        token = furnish(queue)
        touched = damage(queue, place, value)
        assert touched or value == FLIPPED, f"there is no row to damage in {place}"
        if touched and not is_noticed(queue, token, f"{place} = {value[:12]!r}"):
            silent.add(value)
    assert silent <= HARMLESS.get(place, set()), f"unnoticed damage {silent} in {place}"


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("place", NUMBERS)
def test_damaged_numbers_raise_named_errors(fresh: Callable[[], MessageQueue], place: str) -> None:
    for value in (0, 1, 3, 1_000, 1 << 30, -1):
        queue = fresh()
        token = furnish(queue)
        try:
            damage(queue, place, value)
        except Exception as error:
            # The tables themselves reject some values.
            assert any(word in str(error).lower() for word in ("constraint", "range"))
            continue
        is_noticed(queue, token, f"{place} = {value}")


@pytest.mark.slow
@pytest.mark.parametrize("place", TEXTS)
def test_damaged_json_raises_named_errors(fresh: Callable[[], MessageQueue], place: str) -> None:
    values = [
        "{}", "[]", "null", "5", '"text"', '{"heap_size": "x"}', '{"share": "x", "least": 5}', '{"limit": [1]}',
        "[" * 500 + "]" * 500, '{"unknown": 1}',
    ]  # fmt: skip
    for value in values:
        queue = fresh()
        token = furnish(queue)
        assert damage(queue, place, value)
        is_noticed(queue, token, f"{place} = {value[:20]}")


@pytest.mark.parametrize("value", ["not json", "", "{", '{"a": NaN}', "[" * 100_000])
def test_invalid_json_is_noticed(fresh: Callable[[], MessageQueue], store_uri: str, value: str) -> None:
    """PostgreSQL does not store invalid JSON; SQLite does."""
    for place in TEXTS:
        queue = fresh()
        token = furnish(queue)
        if not store_uri.startswith("sqlite"):
            with pytest.raises(Exception, match=r"json|depth"):
                damage(queue, place, value)
            continue
        damage(queue, place, value)
        assert is_noticed(queue, token, place)
        if place == "ring.config":
            with pytest.raises((StoreCorrupt, ConfigRefused)):
                MessageQueue(queue.store, queue.ring)


def test_missing_rows_are_noticed(fresh: Callable[[], MessageQueue]) -> None:
    """If a table is emptied, a call or the check reports it, unless nothing was lost."""
    for table in TABLES:
        queue = fresh()
        token = furnish(queue)
        run(queue, f"DELETE FROM {{s}}{table}")
        noticed = is_noticed(queue, token, f"without {table}")
        assert noticed or table in (
            "delayed",
            "event",
            "charge",
            "ledger",
            "measure",
            "setting",
            "set_aside",
            "outcome",
        ), table
