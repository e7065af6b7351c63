"""Commands in the caller's transaction under SIGKILL: rows and messages commit together."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing import assert_sound
from tests.store.queue.callers import STYLES, Caller, calling

from .children import end_child, run_child, start_child
from .scenes import spared

pytestmark = pytest.mark.crash

#: Transactions per kind of caller; both kinds make ten thousand per store.
TRANSACTIONS = 5_000
#: Transactions of a client that is not killed.
LIFE = 1_000


#: On PostgreSQL, `make soak` kills callers of SQLAlchemy, too.
MARKED = [style if style == "driver" else pytest.param(style, marks=pytest.mark.sqlite_first) for style in STYLES]


def begin(caller: Caller) -> None:
    """Turn off synchronous writes, which the test does not need."""
    if caller.sqlite:
        raw = caller.connection if caller.style == "driver" else caller.connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.execute("PRAGMA synchronous = OFF")
        caller.rollback()


@pytest.mark.parametrize("style", MARKED)
def test_committed_pushes_match_committed_rows(store_uri: str, style: str) -> None:
    """Of ten thousand transactions on each store, some roll back and some clients are killed.

    Each committed row has exactly one message.
    """
    upgrade(parse(store_uri))
    with calling(store_uri, style) as caller:
        caller.rows()
    rng = random.Random(f"outbox {style}")

    def send(first: int, seed: int, killed: bool) -> Callable[[], None]:
        def work() -> None:
            rng_of_client = random.Random(seed)
            # The kill comes soon after this transaction, amid the work, on a machine of any speed.
            last, soon = first + rng_of_client.randrange(50, 350), rng_of_client.random() * 0.002
            with MessageQueue(store_uri) as queue, closing(Caller(store_uri, style)) as mine:
                begin(mine)
                commands = queue.commands(mine.connection)
                for number in range(first, min(first + LIFE, TRANSACTIONS)):
                    if killed and number == last:
                        threading.Timer(soon, os.kill, (os.getpid(), signal.SIGKILL)).start()
                    mine.run(f"INSERT INTO business VALUES ('{number}')")
                    commands.push(f"tenant {number % 3}", b"%d" % number).execute()
                    if rng_of_client.random() < 0.2:
                        mine.rollback()
                    else:
                        mine.commit()

        return work

    first = kills = 0
    while first < TRANSACTIONS:
        ended = end_child(start_child(send(first, rng.randrange(1 << 30), kills < 12)))
        kills += ended.killed
        with calling(store_uri, style) as caller:
            rows = [int(number) for number in caller.rows()]
        first = max(rows, default=-1) + 1 if ended.killed else min(first + LIFE, TRANSACTIONS)
    assert kills >= 8
    with MessageQueue(store_uri) as queue:
        assert_sound(queue)
        sent: list[int] = []
        for tenant in range(3):
            numbers = [int(message.payload) for message in queue.inspect.peek(f"tenant {tenant}", limit=TRANSACTIONS)]
            assert numbers == sorted(numbers), "messages are in the order of the transactions"
            sent += numbers
    print(f"\n{len(rows)} rows, {kills} kills")
    assert len(rows) > TRANSACTIONS // 2
    assert sorted(sent) == sorted(rows)


@pytest.mark.parametrize("style", MARKED)
def test_transfer_survives_a_kill_at_each_statement(store_uri: str, style: str) -> None:
    """The message is in exactly one queue, as its row states, and no row is left."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first:
        first.admin.create_ring("other")
    with calling(store_uri, style) as caller:
        caller.rows()
    count = 0

    def act(number: int) -> Callable[[Callable[[str], None]], None]:
        def work(probe: Callable[[str], None]) -> None:
            with MessageQueue(store_uri) as queue, closing(Caller(store_uri, style)) as mine:
                begin(mine)
                token = queue.leases.view(f"in {number}").try_next()
                assert token is not None
                queue.store.probe = probe
                mine.run(f"INSERT INTO business VALUES ('{number}')")
                commands = queue.commands(mine.connection)
                commands.transfer(token, f"out {number}", ring="other").execute()
                probe("commit of the caller")
                mine.commit()
                probe("committed by the caller")
                queue.admin.housekeep()
                probe("settled")

        return work

    def run(kill_at: int | None) -> list[str]:
        nonlocal count
        count += 1
        with MessageQueue(store_uri) as queue:
            # The inbox row of two messages outlives the transferred one.
            queue.enqueue_messages(f"in {count}", [b"moved", b"stays"])
        ended = run_child(act(count), kill_at=kill_at)
        assert ended.killed == (kill_at is not None)
        with MessageQueue(store_uri) as here, MessageQueue(store_uri, "other") as there:
            for _ in range(2):
                assert_sound(here)
                assert_sound(there)
                places = [
                    [message.payload for message in queue.inspect.peek(origin) if message.state != "reported"].count(
                        b"moved"
                    )
                    for queue, origin in ((here, f"in {count}"), (there, f"out {count}"))
                ]
                with calling(store_uri, style) as caller:
                    moved = str(count) in caller.rows()
                assert places == [int(not moved), int(moved)]
                if kill_at is None or "committed by the caller" in ended.points[:-1]:
                    assert moved
                for block in here.blocks.list("planned"):
                    here.blocks.release(block)
            for queue in (here, there):
                while queue.service_queues(lambda delivery: None).processed:
                    pass
                assert_sound(queue)
                assert queue.check() == [] and len(queue) == 0
            gone = [event for queue in (here, there) for event in queue.inspect.events(name="Processed")]
            assert len(gone) == 2 * count
        return ended.points

    points = run(None)
    assert {"savepoint", "report", "close_block", "insert_copy", "release"} <= set(points)
    assert {"lock_block", "delete_claims", "save_page"} <= set(points)
    left_out = set() if store_uri.startswith("sqlite") else spared(points)
    for number in sorted({*range(len(points))} - left_out):
        run(number)
    with calling(store_uri, style) as caller:
        prefix = "mq_" if caller.sqlite else '"airflow_mq".'
        assert caller.run(f"SELECT count(*) FROM {prefix}inbox") == [(0,)]
