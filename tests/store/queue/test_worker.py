"""A worker services a ring whenever messages wait, and sleeps otherwise."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.queue import holding
from airflow_mq.engine.queue.holding import Hold, LockedRing, RingLease, holder_name
from airflow_mq.engine.queue.service import Service, service_lease
from airflow_mq.engine.queue.values import Delivery, Serviced
from airflow_mq.engine.rules.errors import Busy, CommitInDoubt, StoreUnreachable
from airflow_mq.engine.rules.message import MOST_PID
from airflow_mq.engine.store.rings import Rings
from airflow_mq.ticker import Ticker
from tests.waiting import eventually

from .conftest import Maker


class Running:
    """A worker in a thread of its own."""

    def __init__(self, of: MessageQueue, fails: int = 0, patience: float = 5.0) -> None:
        self.address, self.ring, self.fails, self.patience = of.store.address, of.ring, fails, patience
        self.seen: list[bytes] = []
        self.stop = threading.Event()
        #: While it is set, the processor goes on with its message.
        self.pause = threading.Event()
        self.total = Serviced()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with MessageQueue(self.address, self.ring, busy_timeout=self.patience) as queue:
            self.total = queue.service_forever(self._process, Weight(1_000, 1 << 20), stop=self.stop)

    def _process(self, delivery: Delivery) -> None:
        if self.fails:
            self.fails -= 1
            raise ValueError("not yet")
        while self.pause.is_set():
            time.sleep(0.005)
        self.seen.append(bytes(delivery.payload))

    def wait(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.seen) < count:
            assert time.monotonic() < deadline and self.thread.is_alive()
            time.sleep(0.005)


@contextmanager
def running(of: MessageQueue, fails: int = 0, patience: float = 5.0) -> Iterator[Running]:
    worker = Running(of, fails, patience)
    worker.thread.start()
    try:
        yield worker
    finally:
        worker.stop.set()
        worker.thread.join(30)
        assert not worker.thread.is_alive()


def test_messages_are_processed_as_they_come(queue: MessageQueue) -> None:
    with running(queue) as worker:
        for number in range(5):
            queue.enqueue_message("acme", b"%d" % number)
            worker.wait(number + 1)
    assert worker.seen == [b"0", b"1", b"2", b"3", b"4"]
    assert worker.total.processed == 5
    assert len(queue) == 0


def test_a_message_that_returned_is_tried_again(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"later")
    with running(queue, fails=2) as worker:
        worker.wait(1)
    assert worker.total.returned == 2


def test_a_message_that_returns_to_an_idle_worker_is_tried_again_soon(queue: MessageQueue) -> None:
    with running(queue, fails=2) as worker:
        time.sleep(2.5)
        began = time.monotonic()
        queue.enqueue_message("acme", b"later")
        worker.wait(1)
    assert time.monotonic() - began < 1 and worker.total.returned == 2


def test_a_message_that_always_fails_is_tried_less_and_less(queue: MessageQueue) -> None:
    """It stays the newest one, so it once was tried as often as the store was read: 20 times a second and more."""
    queue.enqueue_message("acme", b"bad")
    with running(queue, fails=10**6) as worker:
        time.sleep(3)
        tried = 10**6 - worker.fails
        worker.fails = 0
        worker.wait(1)
    assert 1 < tried < 40


@pytest.mark.parametrize("state", ["paused", "leased", "swept"])
def test_a_worker_writes_nothing_beside_messages_that_it_cannot_take(queue: MessageQueue, state: str) -> None:
    """It once serviced the ring each second, and a page of the ledger was kept for each."""
    queue.enqueue_message("acme", b"first")
    if state == "paused":
        queue.admin.pause("acme")
    elif state == "leased":
        queue.leases.view("acme").try_next()
    else:
        queue.admin.sweep_queue("acme")
    with running(queue) as worker:
        time.sleep(1)
        version = queue.inspect.ring_version()
        time.sleep(2.5)
        assert queue.inspect.ring_version() == version
        queue.admin.resume("acme")
        queue.enqueue_message("birch", b"second")
        worker.wait(1)


def test_a_delayed_message_is_processed_when_it_is_due(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"delayed", not_before=0.5)
    with running(queue) as worker:
        worker.wait(1)


def test_a_second_worker_takes_over(queue: MessageQueue) -> None:
    with running(queue, patience=0.2) as second:
        with running(queue, patience=0.2) as first:
            queue.enqueue_message("acme", b"1")
            deadline = time.monotonic() + 30
            while not first.seen + second.seen:
                assert time.monotonic() < deadline
                time.sleep(0.005)
        queue.enqueue_message("acme", b"2")
        second.wait(1 + (b"1" in second.seen))
    assert len(queue) == 0


def test_a_lost_listener_costs_only_time(queue: MessageQueue) -> None:
    if queue.store.address.driver != "postgresql":
        pytest.skip("SQLite has no notifications")
    with running(queue) as worker:
        time.sleep(0.3)
        queue.store.lent().connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
        queue.enqueue_message("acme", b"after")
        worker.wait(1)


def test_one_thread_renews_the_leases_of_a_worker(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "RING_LEASE", 0.15)
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    started, renewed = [], []
    start, renew = Ticker.start, Rings.renew_lease
    monkeypatch.setattr(Ticker, "start", lambda ticker: (started.append(ticker), start(ticker)))
    monkeypatch.setattr(Rings, "renew_lease", lambda rings, *lease: (renewed.append(lease[1]), renew(rings, *lease)))
    with running(queue) as worker:
        for number in range(4):
            queue.enqueue_message("acme", b"%d" % number)
            worker.wait(number + 1)
        assert len(started) == 1
        eventually(lambda: len(queue) == 0)
        renewed.clear()
        worker.pause.set()
        queue.enqueue_message("acme", b"slow")
        deadline = time.monotonic() + 30
        while not renewed:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        worker.pause.clear()
        worker.wait(5)
    assert len(set(renewed)) == 1


def taken_leases(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the tokens of the leases that are taken from now on."""
    taken: list[bytes] = []
    take = Rings.take_lease
    monkeypatch.setattr(
        Rings, "take_lease", lambda rings, ring, token, *more: (taken.append(token), take(rings, ring, token, *more))
    )
    return taken


def holder_of(queue: MessageQueue) -> bytes | None:
    """Return the token that holds the ring."""
    with queue.store.loose() as unit:
        return unit.leased(queue.session.ring_id)().state.lease_token


def send_until(queue: MessageQueue, worker: Running, is_done: Callable[[], bool]) -> None:
    """Send messages and let each be processed, until something is so."""
    deadline = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < deadline
        sent = len(worker.seen)
        queue.enqueue_message("acme", b"busy")
        worker.wait(sent + 1)


def test_a_worker_keeps_its_lease_while_messages_come(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    taken = taken_leases(monkeypatch)
    with running(queue) as worker:
        send_until(queue, worker, lambda: len(worker.seen) == 10)
        assert len(taken) == 1
    assert holder_of(queue) is None


def test_an_idle_worker_gives_its_lease_back(queue: MessageQueue) -> None:
    with running(queue) as worker:
        send_until(queue, worker, lambda: len(worker.seen) == 1)
        eventually(lambda: holder_of(queue) is None)
        send_until(queue, worker, lambda: len(worker.seen) == 2)


def test_a_planner_beside_a_busy_worker_gets_the_ring(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    plans: list[int] = []

    def plan() -> None:
        with MessageQueue(queue.store.address, queue.ring) as planner:
            while len(plans) < 3:
                plans.append(planner.blocks.release(planner.blocks.plan()) is None)

    with running(queue) as worker:
        send_until(queue, worker, lambda: len(worker.seen) == 3)
        planning = threading.Thread(target=plan)
        planning.start()
        send_until(queue, worker, lambda: not planning.is_alive())
        planning.join()
    assert len(plans) == 3


def test_a_view_asks_a_worker_for_the_ring(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    with running(queue) as worker:
        send_until(queue, worker, lambda: holder_of(queue) is not None)
        # The view never waits. The worker reads its mark.
        eventually(lambda: queue.leases.view().try_next() is None and holder_of(queue) is None)


def test_a_worker_that_lost_its_lease_takes_another(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    taken = taken_leases(monkeypatch)
    with running(queue) as worker:
        send_until(queue, worker, lambda: holder_of(queue) is not None)
        eventually(lambda: len(queue) == 0)
        with queue.store.writing() as unit:
            unit.rings.drop_lease(queue.session.ring_id, taken[0])
        send_until(queue, worker, lambda: len(worker.seen) >= 3)
    assert len(taken) == 2


def test_a_ring_that_becomes_shuffled_is_serviced_on(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    with running(queue) as worker:
        send_until(queue, worker, lambda: len(worker.seen) >= 2)
        queue.admin.change_ring(order="shuffle")
        send_until(queue, worker, lambda: len(worker.seen) >= 5)
        eventually(lambda: holder_of(queue) is None)


def test_rows_of_an_open_sender_are_above_the_horizon_of_a_kept_lease(pg_uri: str) -> None:
    maker = Maker(pg_uri)
    with closing(maker()) as queue, psycopg.connect(pg_uri) as sender:
        queue.commands(sender).push("acme", b"open").execute()
        first = sender.execute("SELECT max(id) FROM airflow_mq.inbox").fetchone()
        assert first is not None
        with queue.session.hold.transaction():
            # This lock is a mark above the open row.
            pass
        queue.enqueue_message("acme", b"later")
        with queue.store.loose() as unit:
            assert unit.leased(queue.session.ring_id)().horizon <= first[0]
        sender.commit()
        with queue.store.loose() as unit:
            assert unit.leased(queue.session.ring_id)().horizon > first[0]


def test_a_burst_is_longer_than_one_look(queue: MessageQueue) -> None:
    """The look ends after a bounded number of ids; the service looks again for the rest."""
    count = 2_001
    seen: list[str] = []
    with service_lease(queue.session, keeps=True) as lease:

        def service() -> None:
            assert lease.newest()
            Service(queue.session, lambda each: seen.append(each.origin), None, lease).run()

        queue.enqueue_message("first", b"1")
        service()
        queue.enqueue_messages((f"origin-{number}", b"1") for number in range(count))
        service()
        assert not lease.newest()
    assert len(seen) == len(set(seen)) == count + 1


@pytest.mark.slow
def test_a_commit_in_doubt_does_not_end_a_worker(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, failures = Hold.lock, iter([CommitInDoubt("the answer was lost")])

    @contextmanager
    def doubtful(self: Hold, *given: Any, **more: Any) -> Iterator[LockedRing]:
        with locked(self, *given, **more) as held:
            yield held
        for error in failures:
            raise error

    monkeypatch.setattr(Hold, "lock", doubtful)
    queue.enqueue_message("acme", b"first")
    with running(queue) as worker:
        worker.wait(1)
    assert worker.seen == [b"first"]


@pytest.mark.slow
def test_a_worker_gives_its_lease_up_when_the_store_does_not_answer(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have serviced the ring meanwhile: the next service takes a lease of its own."""
    monkeypatch.setattr("airflow_mq.engine.queue.service.ACTIVE", 30.0)
    taken, failures, newest = taken_leases(monkeypatch), list[Exception](), RingLease.newest

    def failing(lease: RingLease) -> int:
        if failures and lease.ring is not None:
            raise failures.pop()
        return newest(lease)

    monkeypatch.setattr(RingLease, "newest", failing)
    with running(queue) as worker:
        send_until(queue, worker, lambda: holder_of(queue) is not None)
        eventually(lambda: len(queue) == 0)
        before = len(taken)
        failures.append(StoreUnreachable())
        eventually(lambda: not failures)
        seen = len(worker.seen)
        send_until(queue, worker, lambda: len(worker.seen) > seen)
    assert len(taken) > before


def test_a_held_lock_does_not_end_a_worker_that_gives_its_lease_back(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, met = RingLease.release, threading.Event()
    queue.enqueue_message("acme", b"1")
    with MessageQueue(queue.store.address, queue.ring) as other:

        def beside_a_lock(lease: RingLease) -> None:
            if lease.token is None or met.is_set():
                return release(lease)
            met.set()
            with other.store.writing() as unit:
                unit.lock(lease.ring_id)
                return release(lease)

        monkeypatch.setattr(RingLease, "release", beside_a_lock)
        with running(queue, patience=0.2) as worker:
            eventually(met.is_set)
            queue.enqueue_message("acme", b"2")
            worker.wait(2)


@pytest.mark.parametrize("is_here", [False, True])
def test_only_a_process_of_this_namespace_counts_as_dead(queue: MessageQueue, is_here: bool) -> None:
    holder = holder_name("serviced", "x").replace(f"process {os.getpid()} ", f"process {MOST_PID} ")
    if not is_here:
        holder = re.sub(r"pid:\[\d+\]", "pid:[1]", holder)
    with queue.store.writing() as unit:
        unit.rings.take_lease(queue.session.ring_id, b"t" * 16, unit.now() + 60_000_000, holder)
    queue.enqueue_message("acme", b"first")
    with MessageQueue(queue.store.address, queue.ring, busy_timeout=0.1) as other:
        if is_here:
            assert other.service_queues(lambda delivery: None).processed == 1
        else:
            with pytest.raises(Busy, match="serviced by x, process"):
                other.service_queues(lambda delivery: None)
