"""Commands in transactions of the caller's, killed: business rows and messages go together, whatever happens."""

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
from airflow_mq.store import parse, upgrade
from airflow_mq.testing import assert_sound
from tests.queue.callers import STYLES, Caller, calling

from .children import end_child, run_child, start_child

pytestmark = pytest.mark.crash

#: Transactions of one kind of caller; the two kinds make ten thousand for each store.
TRANSACTIONS = 5_000
#: How many of them one client does, if it lives.
LIFE = 1_000


def begin(caller: Caller) -> None:
    """Nothing here has to reach a disk."""
    if caller.sqlite:
        raw = caller.connection if caller.style == "driver" else caller.connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.execute("PRAGMA synchronous = OFF")
        caller.rollback()


@pytest.mark.parametrize("style", STYLES)
def test_an_outbox_holds_what_was_committed(store_uri: str, style: str) -> None:
    """Ten thousand transactions on each store, some rolled back, their clients killed: one message for each row."""
    upgrade(parse(store_uri))
    with calling(store_uri, style) as caller:
        caller.rows()
    chance = random.Random(f"outbox {style}")

    def send(first: int, seed: int, killed: bool) -> Callable[[], None]:
        def work() -> None:
            lot = random.Random(seed)
            # However quick the machine is, the kill comes amid the work: somewhere soon after this transaction.
            last, soon = first + lot.randrange(50, 350), lot.random() * 0.002
            with MessageQueue(store_uri) as queue, closing(Caller(store_uri, style)) as mine:
                begin(mine)
                commands = queue.commands(mine.connection)
                for number in range(first, min(first + LIFE, TRANSACTIONS)):
                    if killed and number == last:
                        threading.Timer(soon, os.kill, (os.getpid(), signal.SIGKILL)).start()
                    mine.run(f"INSERT INTO business VALUES ('{number}')")
                    commands.push(f"tenant {number % 3}", b"%d" % number).execute()
                    if lot.random() < 0.2:
                        mine.rollback()
                    else:
                        mine.commit()

        return work

    first = kills = 0
    while first < TRANSACTIONS:
        ended = end_child(start_child(send(first, chance.randrange(1 << 30), kills < 12)))
        kills += ended.killed
        with calling(store_uri, style) as caller:
            rows = [int(number) for number in caller.rows()]
        first = max(rows, default=-1) + 1 if ended.killed else min(first + LIFE, TRANSACTIONS)
    assert kills >= 8
    with MessageQueue(store_uri) as queue:
        assert_sound(queue)
        sent: list[int] = []
        for tenant in range(3):
            its = [int(one.payload) for one in queue.inspect.peek(f"tenant {tenant}", limit=TRANSACTIONS)]
            assert its == sorted(its), "in the order of the transactions"
            sent += its
    print(f"\n{len(rows)} rows, {kills} kills")
    assert len(rows) > TRANSACTIONS // 2
    assert sorted(sent) == sorted(rows)


@pytest.mark.parametrize("style", STYLES)
def test_a_transfer_is_killed_at_every_statement(store_uri: str, style: str) -> None:
    """The message is in exactly one place, with the row that says so; and nothing of a loan is left behind."""
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
            # One of two messages of one call: its mail outlives it.
            queue.enqueue_messages(f"in {count}", [b"moved", b"stays"])
        ended = run_child(act(count), kill_at=kill_at)
        assert ended.killed == (kill_at is not None)
        with MessageQueue(store_uri) as here, MessageQueue(store_uri, "other") as there:
            for _ in range(2):
                assert_sound(here)
                assert_sound(there)
                places = [
                    [one.payload for one in queue.inspect.peek(origin) if one.state != "reported"].count(b"moved")
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
    assert {"savepoint", "close_block", "insert_outcome", "insert_borrowed", "insert_loan", "release"} <= set(points)
    assert {"lock_block", "delete_claims", "save_page"} <= set(points)
    for number in range(len(points)):
        run(number)
    with calling(store_uri, style) as caller:
        prefix = "mq_" if caller.sqlite else '"airflow_mq".'
        for table in ("loan", "mail"):
            assert caller.run(f"SELECT count(*) FROM {prefix}{table}") == [(0,)]
