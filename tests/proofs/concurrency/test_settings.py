"""Changes of settings while another process waits for the ring, and in open sessions of senders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from airflow_mq import Message, MessageQueue, RingConfig, Weight
from airflow_mq.engine.queue import session
from airflow_mq.engine.rules.working_set import WorkingSet
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.origins import Origins
from airflow_mq.errors import ConfigRefused, StoreCorrupt, TooManyOrigins
from tests.holding import drop_lease, take_lease
from tests.proofs.model.clock import Clock
from tests.waiting import eventually

SMALL, LARGE = 64, 1_000


@pytest.fixture
def queues(store_uri: str) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("small", RingConfig(heap_size=SMALL))
    with MessageQueue(store_uri, "small") as queue, MessageQueue(store_uri, "small") as other:
        yield queue, other


def run_beside_a_change(
    queue: MessageQueue, other: MessageQueue, work: Callable[[], Any], after: Callable[[], object], **changes: Any
) -> Any:
    """Change settings with one queue while `work` of the other one waits for the ring; return the result of `work`.

    :param after: called after the change, before the process that waited goes on
    """
    with ThreadPoolExecutor(1) as pool:
        waiting: list[Future[Any]] = []

        def begin(step: str) -> None:
            if step == "commit" and not waiting:
                waiting.append(pool.submit(work))
                eventually(lambda: is_waiting(queue))

        def let_pass(step: str) -> None:
            if step in ("promote_due", "delayed"):
                other.store.probe = None
                after()

        queue.store.probe, other.store.probe = begin, let_pass
        queue.admin.change_ring(**changes)
        queue.store.probe = None
        return waiting[0].result()


def is_waiting(queue: MessageQueue) -> bool:
    """Return whether a session of this database waits for a lock."""
    with MessageQueue(queue.store.address) as watcher, watcher.store.loose() as unit:
        connection = unit.connection  # type: ignore[attr-defined]
        return bool(connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0])


@pytest.mark.concurrency
@pytest.mark.postgres
def test_two_changes_at_a_time_both_count(pg_queues: tuple[MessageQueue, MessageQueue]) -> None:
    queue, other = pg_queues
    run_beside_a_change(queue, other, lambda: other.admin.change_ring(max_stale=7), lambda: None, heap_size=LARGE)
    with MessageQueue(queue.store.address, "small") as fresh:
        assert (fresh.config.heap_size, fresh.config.max_stale) == (LARGE, 7)


@pytest.mark.concurrency
@pytest.mark.postgres
def test_a_share_waits_for_no_sender(pg_queues: tuple[MessageQueue, MessageQueue]) -> None:
    """A pause or the first high message locks the settings of the ring, and a caller may commit much later."""
    queue, other = pg_queues
    with queue.store.writing() as unit:
        unit.rings.held_config(queue.session.ring_id)
        with ThreadPoolExecutor(1) as pool:
            change = pool.submit(other.admin.set_origin, "acme", share=2)
            assert change.result(timeout=5.0) == {"share": (1, 2)}


@pytest.mark.concurrency
@pytest.mark.postgres
@pytest.mark.parametrize("weighed", [False, True])
def test_a_plan_that_waited_knows_the_larger_pages(
    pg_queues: tuple[MessageQueue, MessageQueue], weighed: bool, few_pages: None
) -> None:
    queue, other = pg_queues
    other.enqueue_message("a", b"small")
    weigher = (lambda origin, payloads: [(1, 1)] * len(payloads)) if weighed else None

    def send() -> None:
        with MessageQueue(queue.store.address, "small") as sender:
            sender.enqueue_message("a", b"x" * (LARGE - 100))

    block = run_beside_a_change(queue, other, lambda: other.blocks.plan(weigher=weigher), send, heap_size=LARGE)
    assert sum(len(batch) for batch in block.batches()) == 2
    other.blocks.settle(block)
    assert other.check() == []


@pytest.fixture
def pg_queues(pg_uri: str) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as admin:
        admin.admin.create_ring("small", RingConfig(heap_size=SMALL))
    with MessageQueue(pg_uri, "small") as queue, MessageQueue(pg_uri, "small") as other:
        yield queue, other


@pytest.fixture
def few_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail in place of opening pages for ever."""
    opened, open_page = [], WorkingSet._open_page

    def counted(self: WorkingSet, *given: Any) -> Any:
        opened.append(1)
        assert len(opened) < 100, "pages are opened for ever"
        return open_page(self, *given)

    monkeypatch.setattr(WorkingSet, "_open_page", counted)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_page_that_takes_nothing_is_an_error(
    queues: tuple[MessageQueue, MessageQueue], rows: int, few_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not know of the larger pages stops, and changes nothing."""
    queue, other = queues
    queue.admin.change_ring(heap_size=LARGE)
    queue.enqueue_messages("a", [b"x" * (LARGE - 100)] * rows)
    known = other.config
    monkeypatch.setattr(other.session, "remember_config", lambda plain: RingConfig(**{**vars(known), "heap_size": 64}))
    with pytest.raises(StoreCorrupt, match="does not fit an empty page of 64 bytes"):
        other.blocks.plan()
    monkeypatch.undo()
    assert queue.service_queues(lambda delivery: None).processed == rows
    assert queue.check() == []


def test_a_longer_window_counts_in_open_sessions_at_once(
    queues: tuple[MessageQueue, MessageQueue], clock: Clock
) -> None:
    queue, sender = queues
    queue.admin.change_ring(key_window=10)
    sender.session.reread_config()
    assert sender.enqueue_message("a", b"once", key="k").count == 1
    queue.admin.change_ring(key_window=1_000)
    clock.advance(100)
    assert sender.enqueue_message("a", b"once", key="k").repeated == 1
    assert queue.footprint("a").count == 1


def test_open_sessions_of_senders_read_settings_again(
    queues: tuple[MessageQueue, MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, sender = queues
    monkeypatch.setattr(session, "CONFIG_AGE", 0.0)
    sender.enqueue_message("a", b"small")
    queue.admin.change_ring(heap_size=LARGE, max_origins=1)
    sender.enqueue_message("a", b"x" * (LARGE - 100))
    with pytest.raises(TooManyOrigins):
        sender.enqueue_message("b", b"x")
    with pytest.raises(TooManyOrigins):
        sender.enqueue_messages("b", [Message(b"x", "key")])
    assert queue.service_queues(lambda delivery: None).processed == 2


@pytest.mark.parametrize("weighed", [False, True])
def test_an_open_session_plans_and_services_by_changed_settings(
    queues: tuple[MessageQueue, MessageQueue], weighed: bool
) -> None:
    queue, other = queues
    queue.enqueue_messages("a", [b"x"] * 20)
    other.admin.change_ring(service_weight=Weight(2, 1 << 20), lease=70.0)
    weigher = (lambda origin, payloads: [Weight(1, 1)] * len(payloads)) if weighed else None
    block = queue.blocks.plan(weigher=weigher)
    assert (block.limit.time, block.lease, block.messages) == (2, 70.0, 2)
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)

    other.admin.change_ring(service_weight=Weight(3, 1 << 20))
    assert queue.service_queues(lambda delivery: None).processed == 3

    queue.enqueue_message("b", b"heavy", weight=Weight(9, 1))
    queue.service_queues(lambda delivery: None)
    (aside,) = queue.set_aside.list()
    other.admin.change_ring(lease=80.0)
    block = queue.blocks.plan_overweight(aside.address, Weight(10, 1 << 20))
    assert block.lease == 80.0
    queue.blocks.release(block)


def test_an_open_session_decides_by_changed_settings(queues: tuple[MessageQueue, MessageQueue]) -> None:
    queue, other = queues
    # Each message has a page of its own.
    queue.enqueue_messages("a", [b"x" * (SMALL - 20)] * 3, weight=Weight(10**9, 1))
    queue.service_queues(lambda delivery: None)
    assert queue.set_aside.cull() == 0
    other.admin.change_ring(max_stale=1)
    assert queue.set_aside.cull() == 2
    other.admin.change_ring(set_aside_expires=0.01)
    time.sleep(0.05)
    assert queue.set_aside.expire() == 1


def test_an_open_session_requeues_by_changed_settings(queues: tuple[MessageQueue, MessageQueue]) -> None:
    queue, other = queues
    queue.admin.change_ring(set_aside_above="block", service_weight=Weight(5, 1 << 20))
    queue.enqueue_message("a", b"x", weight=Weight(9, 1))
    queue.service_queues(lambda delivery: None)
    other.admin.change_ring(service_weight=Weight(10, 1 << 20))
    assert len(queue.set_aside.requeue_all().moved) == 1


def test_settings_that_were_read_lately_take_no_statement(queues: tuple[MessageQueue, MessageQueue]) -> None:
    _, sender = queues
    sender.session.reread_config()
    seen: list[str] = []
    sender.store.probe = seen.append
    sender.enqueue_message("a", b"x")
    sender.store.probe = None
    assert "rings" not in seen


def test_a_failed_read_leaves_no_request_behind(pg_queues: tuple[MessageQueue, MessageQueue]) -> None:
    """An error of the caller within a series of reads: the next transaction runs none of the requested statements."""
    queue, _ = pg_queues
    ring = queue.session.ring_id
    with pytest.raises(ZeroDivisionError), queue.store.loose() as unit:
        unit.rings.take_lease(ring, b"token", 1 << 62, "a process that failed")
        raise ZeroDivisionError
    queue.enqueue_message("a", b"x")
    assert queue.service_queues(lambda delivery: None).processed == 1


@pytest.mark.slow
def test_a_group_is_not_paused_while_the_ring_loses_its_paths(
    queues: tuple[MessageQueue, MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause of a group and a change to `paths=False` at the same time: one of them is refused."""
    queue, other = queues
    queue.admin.change_ring(paths=True)
    pause = Origins.pause
    changes: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as pool:

        def pause_beside_a_change(origins: Origins, *arguments: Any, **options: Any) -> None:
            changes.append(pool.submit(other.admin.change_ring, paths=False))
            # On a database server, the change must wait now; a file has one writer anyway.
            wait(changes, timeout=1.0)
            pause(origins, *arguments, **options)

        monkeypatch.setattr(Origins, "pause", pause_beside_a_change)
        queue.admin.pause("acme", below=True)
        error = changes[0].exception()
    assert isinstance(error, ConfigRefused), error
    assert [one.below for one in queue.admin.paused()] == [True]
    queue.session.reread_config()
    assert queue.config.paths
    # The other way round, the pause is refused.
    queue.admin.resume("acme")
    other.admin.change_ring(paths=False)
    with pytest.raises(ConfigRefused):
        queue.admin.pause("acme", below=True)


def test_a_change_that_waited_applies_the_ends_of_that_time_first(
    queues: tuple[MessageQueue, MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes the ring while earlier ends are applied; more ends are recorded until it gives it back."""
    queue, other = queues
    token, blocks = b"live" * 4, []
    for origin in "ab":
        queue.enqueue_message(origin, b"1")
        blocks.append(queue.blocks.plan())
    take_lease(queue.session, token)
    other.blocks.settle(blocks[0])
    drop_lease(queue.session, token)
    apply_ends = other.session.settler.apply_ends

    def overtaken() -> None:
        monkeypatch.setattr(other.session.settler, "apply_ends", apply_ends)
        apply_ends()
        take_lease(queue.session, token)
        with MessageQueue(queue.store.address, "small") as third:
            third.blocks.settle(blocks[1])
        pool.submit(lambda: (eventually(lambda: lease_is_wanted(queue)), drop_lease(queue.session, token)))

    monkeypatch.setattr(other.session.settler, "apply_ends", overtaken)
    with ThreadPoolExecutor(1) as pool:
        assert other.admin.change_ring(max_attempts=9).max_attempts == 9
    assert queue.check() == []


def lease_is_wanted(queue: MessageQueue) -> bool:
    with MessageQueue(queue.store.address, "small") as watcher, watcher.store.writing() as unit:
        return bool(unit.lock(watcher.session.ring_id).state.lease_wanted)
