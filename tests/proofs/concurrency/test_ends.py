"""One writer per ring: ends of blocks that are recorded while another process holds the ring, and applied by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_mq import BadFormat, Done, MessageQueue, Outcome, Overweight, RingConfig, Weight, Yield
from airflow_mq.engine.queue.blocks.block import Block
from airflow_mq.engine.queue.blocks.settling import Settling
from airflow_mq.engine.queue.values import Delivery, Report
from airflow_mq.engine.rules.errors import InFlight
from airflow_mq.engine.store import parse, upgrade
from tests.holding import drop_lease, take_lease

pytestmark = pytest.mark.concurrency

LIMIT = Weight(1_000, 1 << 20)


def ring_at(uri: str, **settings: object) -> None:
    upgrade(parse(uri))
    with MessageQueue(uri) as first:
        first.admin.create_ring("small", RingConfig(heap_size=64, service_weight=LIMIT, **settings))


@pytest.fixture
def pair(store_uri: str) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    """Yield two clients of one ring."""
    ring_at(store_uri)
    with MessageQueue(store_uri, "small") as first, MessageQueue(store_uri, "small") as second:
        yield first, second


def serve_and(
    queue: MessageQueue, action: Callable[[], object], at: int = 1, answer: Outcome | None = None, **options: object
) -> list[bytes]:
    """Service the ring; run an action in another thread during the n-th message; return the payloads in order."""
    seen: list[bytes] = []
    with ThreadPoolExecutor(1) as other:

        def processor(delivery: Delivery) -> Outcome | None:
            seen.append(delivery.payload)
            if len(seen) == at:
                done.append(other.submit(action))
                done[0].exception()
            return answer

        done: list = []
        queue.service_queues(processor, **options)
    assert done, "no message was processed"
    done[0].result()
    return seen


def done(block: Block, outcome: Outcome | None = None) -> list[Report]:
    """Return reports on all messages of a block."""
    return [
        Report(batch.origin, batch.page, batch.first, batch.first + len(batch) - 1, outcome or Done(), batch.priority)
        for batch in block.batches()
    ]


def processed(queue: MessageQueue) -> list[bytes]:
    return sorted(event.id for event in queue.inspect.events(name="Processed"))


def assert_all_processed_once(queue: MessageQueue, count: int, left: int = 0) -> None:
    for _ in range(10):
        assert queue.check() == []
        queue.service_queues(lambda delivery: None)
    assert queue.check() == []
    ids = processed(queue)
    assert len(ids) == len(set(ids)) == count
    assert sum(footprint.count for _, footprint in queue.footprints()) == left


def empty_claim(queue: MessageQueue, other: MessageQueue) -> Block:
    """Return a block with a claim of `a` that holds no message: all were in flight; a set-aside message keeps the page."""
    queue.enqueue_message("a", b"heavy", weight=Weight(5_000, 0))
    queue.enqueue_messages("a", [b"light 1", b"light 2"])
    first, second = queue.blocks.plan(), other.blocks.plan()
    assert first.messages == 2
    assert [claim.messages for claim in second.claims] == [0]
    queue.blocks.report(first, done(first))
    queue.blocks.settle(first)
    return second


@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("slice_messages", [1, 3, 50])
def test_block_with_an_empty_claim_settles_during_a_service(store_uri: str, at: int, slice_messages: int) -> None:
    ring_at(store_uri, ordered=False)
    with MessageQueue(store_uri, "small") as queue, MessageQueue(store_uri, "small") as other:
        block = empty_claim(queue, other)
        queue.enqueue_messages("a", [b"late %d" % n for n in range(4)])

        def send_and_settle() -> None:
            for n in range(4):
                other.enqueue_message("a", b"later %d" % n)
            other.blocks.settle(block)

        serve_and(queue, send_and_settle, at, slice_messages=slice_messages)
        assert queue.check() == []
        assert_all_processed_once(queue, 10, left=1)


@pytest.mark.parametrize("paths", [False, True])
@pytest.mark.parametrize("at", [1, 5])
def test_overrun_is_charged_if_the_block_settles_during_a_service(store_uri: str, paths: bool, at: int) -> None:
    ring_at(store_uri, order="deficit", paths=paths)
    with MessageQueue(store_uri, "small") as queue, MessageQueue(store_uri, "small") as other:
        queue.enqueue_messages("a/b", [b"held %d" % n for n in range(4)])
        block = queue.blocks.plan(limit=Weight(2, 1 << 20))
        queue.enqueue_messages("c", [b"c %d" % n for n in range(6)])
        reports = done(block, Done(used=Weight(200, 1)))
        before = _deficits(queue)

        def settle() -> None:
            other.blocks.report(block, reports)
            other.blocks.settle(block)

        serve_and(queue, settle, at, slice_messages=1)
        assert queue.check() == []
        after = _deficits(queue)
        assert after["a/b"] < before["a/b"] - 1_000, (before, after)


def _deficits(queue: MessageQueue) -> dict[str, int]:
    with queue.session.store.reading() as unit:
        return {
            row.origin: row.deficit
            for row in queue.session.stored_working_set(unit).reading.books(["a/b", "c"], unit.now())
        }


@pytest.mark.slow
def test_a_service_waits_for_the_lock_as_long_as_its_lease_lives(store_uri: str) -> None:
    """Another transaction holds the ring's lock for longer than the busy timeout: no finished work is thrown away."""
    ring_at(store_uri)
    with MessageQueue(store_uri, "small", busy_timeout=0.2) as queue, MessageQueue(store_uri, "small") as other:
        queue.enqueue_messages("a", [b"a %d" % n for n in range(6)])
        locked, waits = threading.Event(), threading.Event()

        def hold() -> None:
            with other.session.store.writing() as unit:
                unit.lock(other.session.ring_id)
                locked.set()
                assert waits.wait(60)
                time.sleep(1.0)

        def watch(name: str) -> None:
            if locked.is_set() and name == "begin":
                waits.set()

        queue.session.store.probe = watch
        with ThreadPoolExecutor(1) as threads:
            futures = []

            def processor(delivery: Delivery) -> None:
                if not futures:
                    futures.append(threads.submit(hold))
                    assert locked.wait(60)

            result = queue.service_queues(processor, slice_messages=3)
            futures[0].result()
        assert result.processed == 6
        assert_all_processed_once(queue, 6)


@pytest.mark.parametrize("how", ["settle", "release"])
def test_the_result_is_final_when_the_end_is_recorded(pair: tuple[MessageQueue, MessageQueue], how: str) -> None:
    queue, other = pair
    queue.enqueue_messages("held", [b"held %d" % n for n in range(6)])
    block = queue.blocks.plan(limit=Weight(4, 1 << 20))
    queue.enqueue_messages("served", [b"served %d" % n for n in range(4)])
    results = []

    def end() -> None:
        other.blocks.report(block, done(block)[:1])
        act = other.blocks.settle if how == "settle" else other.blocks.release
        results.append(act(block))
        # It is no live block any more, and a repeated call returns the same.
        assert other.blocks.get(block.token).state == ("settled" if how == "settle" else "released")
        assert act(block) == results[0]
        with pytest.raises(Exception, match=r"too late|cannot be"):
            other.blocks.report(block, done(block)[:1])
        assert other.check() == []

    serve_and(queue, end, 2, slice_messages=50)
    (result,) = results
    assert result.processed + result.returned == block.messages
    assert queue.check() == []
    assert other.blocks.settle(block) == result if how == "settle" else True
    assert_all_processed_once(queue, 10)


def test_readers_see_a_recorded_end(pair: tuple[MessageQueue, MessageQueue]) -> None:
    """Processed messages are gone, and requeued ones wait, before the holder of the ring applies the end."""
    queue, other = pair
    queue.enqueue_messages("held", [b"held %d" % n for n in range(6)])
    block = queue.blocks.plan(limit=Weight(4, 1 << 20))
    assert block.messages == 4
    queue.enqueue_messages("served", [b"served %d" % n for n in range(4)])
    reader = MessageQueue(other.session.store, "small")

    def end() -> None:
        reports = [
            Report("held", batch.page, batch.first + place, batch.first + place, outcome)
            for batch in block.batches()
            for place, outcome in enumerate(
                [Done(enqueue=[("sent", b"child")]), Done(), Yield("no"), Overweight(Weight(9_999, 1))][: len(batch)]
            )
        ]
        other.blocks.report(block, reports)
        result = other.blocks.settle(block)
        assert result.processed + result.returned + result.set_aside == 4
        left = 6 - result.processed
        assert reader.footprint("held").count == left
        states = {state.origin: state for state in reader.inspect.queues()}
        assert states["held"].messages == left
        assert states["held"].in_flight == 0
        assert states["held"].set_aside == result.set_aside
        (sent,) = reader.inspect.queues(among=[("sent", "regular")])
        assert sent.messages == 1
        assert reader.footprint("sent").count == 1
        peeked = [message for message in reader.inspect.peek("held") if message.state == "waiting"]
        assert len(peeked) == left - result.set_aside
        assert [message.payload for message in reader.inspect.peek("sent")] == [b"child"]
        assert reader.inspect.backlog().messages == left - result.set_aside + 4 + 1
        assert reader.inspect.backlog().set_aside == result.set_aside
        assert reader.inspect.backlog().in_flight == 0
        assert "flight" not in reader.inspect.explain("held").sentence
        forecast = next(iter(reader.inspect.forecast(1)))
        assert forecast.queue("held").messages == left - result.set_aside
        assert reader.check() == []

    serve_and(queue, end, 1, slice_messages=50)
    assert queue.check() == []


def test_recorded_ends_of_a_dead_holder_are_applied(pair: tuple[MessageQueue, MessageQueue]) -> None:
    queue, other = pair
    for name in "abc":
        queue.enqueue_messages(name, [b"%s %d" % (name.encode(), n) for n in range(2)])
    first = queue.blocks.plan(limit=Weight(2, 1 << 20))
    second = queue.blocks.plan(limit=Weight(2, 1 << 20))
    token = b"dead" * 4
    take_lease(queue.session, token)
    for block in (first, second):
        other.blocks.report(block, done(block))
        assert other.blocks.settle(block).processed == block.messages
    assert _ends(other) == 2
    with other.session.store.writing() as unit:
        unit.rings.drop_lease(other.session.ring_id, token)
    assert other.blocks.plan().messages == 2
    assert _ends(other) == 0
    assert other.check() == []
    assert len(processed(other)) == 4


def _ends(queue: MessageQueue) -> int:
    with queue.session.store.loose() as unit:
        return unit.rings.state(queue.session.ring_id).ends


def test_an_end_that_cannot_be_applied_is_set_apart(
    pair: tuple[MessageQueue, MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = pair
    queue.enqueue_messages("bad", [b"bad %d" % n for n in range(2)])
    bad = queue.blocks.plan()
    queue.enqueue_messages("good", [b"good %d" % n for n in range(2)])
    good = queue.blocks.plan()
    token = b"live" * 4
    take_lease(queue.session, token)
    for block in (bad, good):
        other.blocks.report(block, done(block))
        other.blocks.settle(block)
    settle = Settling.parts

    def broken(self: Settling) -> Iterator[None]:
        if self.claims[0].origin == "bad":
            raise ValueError("broken on purpose")
        return settle(self)

    monkeypatch.setattr(Settling, "parts", broken)
    drop_lease(queue.session, token)
    queue.enqueue_message("new", b"new")
    plan = other.blocks.plan()
    assert [claim.origin for claim in plan.claims] == ["new"]
    assert _ends(other) == 0
    bad_id = _id_of(other, bad)
    with other.session.store.reading() as unit:
        (end,) = unit.blocks.ends(other.session.ring_id, failed=True)
    assert (end.row.id, end.error) == (bad_id, "ValueError")
    assert len(processed(other)) == 2
    assert other.check() == []
    states = {state.origin: state for state in other.inspect.queues()}
    assert states["bad"].in_flight == 2
    with pytest.raises(InFlight, match="recorded end"):
        other.admin.change_ring(max_attempts=5)
    assert other.blocks.unapplied() == [(bad.id, "ValueError")]
    # Housekeeping tries again, once the reason is gone.
    monkeypatch.setattr(Settling, "parts", settle)
    other.admin.housekeep()
    assert other.blocks.unapplied() == []
    assert other.admin.change_ring(max_attempts=5).max_attempts == 5
    assert len(processed(other)) == 4
    assert other.check() == []


def _id_of(queue: MessageQueue, block: Block) -> int:
    with queue.session.store.reading() as unit:
        row = unit.blocks.by_token(queue.session.ring_id, bytes.fromhex(block.token))
    assert row is not None
    return row.id


def test_an_ended_block_is_no_twin_and_its_claims_stay_until_it_is_applied(
    pair: tuple[MessageQueue, MessageQueue],
) -> None:
    queue, other = pair
    queue.enqueue_messages("held", [b"held %d" % n for n in range(6)])
    block = queue.blocks.plan("key", limit=Weight(2, 1 << 20))
    token = b"live" * 4
    take_lease(queue.session, token)
    other.blocks.report(block, done(block, BadFormat()))
    other.blocks.settle(block)
    assert other.blocks.live("key") is None
    assert other.blocks.release_dead() == 0
    other.admin.housekeep()
    block_id = _id_of(other, block)
    with other.session.store.reading() as unit:
        assert unit.blocks.claims(block_id)
    drop_lease(queue.session, token)
    again = other.blocks.plan("key", limit=Weight(2, 1 << 20))
    assert again.token != block.token
    assert again.messages == 2
    assert other.check() == []


def test_ends_are_applied_in_their_order_and_once(pair: tuple[MessageQueue, MessageQueue]) -> None:
    queue, other = pair
    for name in "abcd":
        queue.enqueue_messages(name, [b"%s %d" % (name.encode(), n) for n in range(2)])
    blocks = [queue.blocks.plan(limit=Weight(2, 1 << 20)) for _ in range(4)]
    token = b"live" * 4
    take_lease(queue.session, token)
    for block in reversed(blocks):
        other.blocks.report(block, done(block))
        other.blocks.settle(block)
    drop_lease(queue.session, token)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda client: client.blocks.plan(), (queue, other)))
    numbers = [event.block for event in other.inspect.events(name="Processed")]
    assert numbers == [block.id for block in reversed(blocks) for _ in range(2)]
    assert other.check() == []


def test_a_block_of_a_token_that_a_transaction_completes_does_not_hold_the_ring(
    store_uri: str,
) -> None:
    """Settling its block raises at once, and so does releasing it; others use the ring meanwhile."""
    ring_at(store_uri)
    with MessageQueue(store_uri, "small") as queue, MessageQueue(store_uri, "small", busy_timeout=300) as other:
        _use_beside_a_completing_transaction(queue, other)


def _use_beside_a_completing_transaction(queue: MessageQueue, other: MessageQueue) -> None:
    if queue.session.store.address.driver == "sqlite":
        pytest.skip("SQLite has one writing transaction at a time")
    queue.enqueue_messages("a", [b"a %d" % n for n in range(2)])
    token = queue.leases.next()
    assert token is not None
    from airflow_mq.engine.queue.tokens import complete_in

    with queue.session.store.writing() as unit:
        complete_in(unit, queue.session.ring_id, token, Done())

        def attempt(act: Callable[[], object]) -> float:
            began = time.monotonic()
            with pytest.raises(InFlight, match="another transaction"):
                act()
            return time.monotonic() - began

        with ThreadPoolExecutor(1) as threads:
            for act in (
                lambda: other.blocks.settle(token.secret),
                lambda: other.blocks.release(token.secret),
            ):
                assert threads.submit(attempt, act).result() < 60, "it waited for the transaction"
            assert threads.submit(other.blocks.plan).result().messages >= 0
    other.blocks.release_dead()
    assert other.check() == []
    assert len(processed(other)) == 1


def test_paging_goes_on_behind_queues_that_a_recorded_end_has_emptied(pair: tuple[MessageQueue, MessageQueue]) -> None:
    first, second = pair
    first.enqueue_messages((f"a-{number:02}", b"x") for number in range(30))
    block = first.blocks.plan()
    first.enqueue_messages((f"z-{number}", b"x") for number in range(2))
    take_lease(second.session, b"t" * 16)
    try:
        first.blocks.report(block, done(block))
        first.blocks.settle(block)
        assert [origin for origin, _ in first.footprints(limit=10)] == ["z-0", "z-1"]
        assert first.footprints(limit=0) == [] and len(first) == 2
    finally:
        drop_lease(second.session, b"t" * 16)
