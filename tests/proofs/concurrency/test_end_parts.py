"""Large recorded ends: they are applied in parts, each once, although holders of the ring die meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import BadFormat, Done, MessageQueue, Outcome, Overweight, RingConfig, Weight, Yield
from airflow_mq.engine.queue.blocks import settling
from airflow_mq.engine.queue.blocks.block import Block
from airflow_mq.engine.queue.blocks.settlement import BlockSettler
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.store import parse, upgrade
from tests.holding import drop_lease, take_lease

pytestmark = pytest.mark.concurrency

LIMIT = Weight(1_000, 1 << 20)
TOKEN = b"live" * 4
RINGS = {
    "ordered": {"ordered": True},
    "relaxed": {"ordered": False, "order": "rotation"},
    "paths": {"ordered": True, "paths": True},
}
OUTCOMES: tuple[Outcome | None, ...] = (
    Done(), Done(used=Weight(40, 2)), Done(enqueue=[("sent", b"child")]), BadFormat(), Done(used=Weight(60, 2)),
    Overweight(Weight(1 << 30, 1)), Overweight(Weight(50, 1)), Done(), Yield("not now"), Done(), None, Done(), Done(used=Weight(90, 2)),
)  # fmt: skip


class Died(BaseException):
    """The holder of the ring dies."""


@contextmanager
def a_ring(uri: str, name: str, kind: str, *, most: bool = False) -> Iterator[tuple[MessageQueue, MessageQueue, Block]]:
    """Yield two clients of a ring that the first one holds, and a block whose end the second one has recorded.

    :param most: some origins have a *most* when the block ends
    """
    with MessageQueue(uri) as admin:
        config = RingConfig(heap_size=40, service_weight=LIMIT, max_attempts=3, **RINGS[kind])  # type: ignore[arg-type]
        admin.admin.create_ring(name, config)
    with MessageQueue(uri, name, actor="holder") as holder, MessageQueue(uri, name, actor="other") as other:
        for number in range(len(OUTCOMES)):
            for origin in ("a/x", "a/y", "b"):
                holder.enqueue_message(origin, b"%s %d" % (origin.encode(), number))
        holder.enqueue_message("b", b"heavy", weight=Weight(5_000, 0))
        block = holder.blocks.plan()
        assert block.messages == 3 * len(OUTCOMES)
        holder.enqueue_message("c", b"c")
        if most:
            for origin in ("a/x", "b"):
                holder.admin.set_origin(origin, most=Weight(40, 1 << 20))
        take_lease(holder.session, TOKEN)
        other.blocks.report(block, reports(block))
        other.blocks.settle(block)
        yield holder, other, block


def reports(block: Block) -> list[Report]:
    found, count = [], {"a/x": 0, "a/y": 3, "b": 6, "empty": 0}
    for batch in block.batches():
        for item in range(batch.first, batch.first + len(batch)):
            outcome = OUTCOMES[count[batch.origin] % len(OUTCOMES)]
            count[batch.origin] += 1
            if outcome is not None:
                found.append(Report(batch.origin, batch.page, item, item, outcome))
    return found


def ends(queue: MessageQueue) -> int:
    with queue.session.store.loose() as unit:
        return len(unit.blocks.ends(queue.session.ring_id, failed=True))


def held(queue: MessageQueue) -> int:
    with queue.session.store.reading() as unit:
        return len(unit.blocks.in_flight(queue.session.ring_id))


def picture(queue: MessageQueue) -> dict[str, Any]:
    """Return what readers see, without what follows when an end is applied."""
    return {
        "footprints": [(origin, one.count, one.size) for origin, one in queue.footprints()],
        "peeked": {
            origin: [(one.payload, one.state, one.attempts) for one in queue.inspect.peek(origin, limit=100)]
            for origin in ("a/x", "a/y", "b", "c", "sent")
        },
        "backlog": (queue.inspect.backlog().messages, queue.inspect.backlog().set_aside),
    }


def books(queue: MessageQueue) -> dict[str, Any]:
    """Return all that an end writes."""
    with queue.session.store.reading() as unit:
        stored = queue.session.stored_working_set(unit).reading
        rows = stored.books(["a/x", "a/y", "b", "c", "sent"], unit.now())
        groups = {row[0]: tuple(row[1:]) for row in stored.groups()}
    return {
        "books": {row.origin: (*row[1:6], row.deficit) for row in rows},
        "groups": groups,
        "events": [
            (
                event.name,
                event.origin,
                event.index,
                event.id,
                event.weight,
                event.detail.partition("; sent")[0],
                event.block,
            )
            for event in queue.inspect.events()
        ],
        "set_aside": [(one.address, one.reason, one.weight) for one in queue.set_aside.list()],
        **picture(queue),
    }


@pytest.mark.parametrize("kind", list(RINGS))
@pytest.mark.parametrize("part", [1, 4])
def test_holders_that_die_between_parts_change_nothing(
    store_uri: str, kind: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holder applies one part and dies. In the end, the ring is as if one holder had applied all at once."""
    upgrade(parse(store_uri))
    with a_ring(store_uri, "whole", kind) as (holder, other, _):
        drop_lease(holder.session, TOKEN)
        holder.session.hold.apply_soon()
        expected = books(other)
    apply, left = BlockSettler._apply, 0

    def dying(self: BlockSettler, *arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died
        apply(self, *arguments)

    monkeypatch.setattr(settling, "PART", part)
    monkeypatch.setattr(BlockSettler, "_apply", dying)
    with a_ring(store_uri, "parts", kind) as (holder, other, _):
        seen, deaths = picture(other), 0
        drop_lease(holder.session, TOKEN)
        claims = held(other)
        while ends(other):
            left = 1
            with pytest.raises(Died) if ends(other) else monkeypatch.context():
                other.session.settler.apply_ends()
                if not ends(other):
                    raise Died
            deaths += 1
            assert other.check() == []
            assert picture(other) == seen
            assert held(other) <= claims
            claims = held(other)
        assert deaths > 2
        left = 1 << 30
        assert books(other) == expected
        assert other.blocks.plan().messages


def test_a_service_applies_a_large_end_between_its_slices(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for it no longer than a slice, however large the end is."""
    upgrade(parse(store_uri))
    monkeypatch.setattr(settling, "PART", 3)
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("r", RingConfig(heap_size=40, service_weight=LIMIT))
    with MessageQueue(store_uri, "r") as queue, MessageQueue(store_uri, "r") as other:
        queue.enqueue_messages("held", [b"held %d" % n for n in range(20)])
        block = queue.blocks.plan()
        queue.enqueue_messages("served", [b"served %d" % n for n in range(4)])
        assert serve_and_end(queue, other, [block], 1, Done())[:4] == [1, 0, 0, 0]
        assert queue.check() == []
        ids = [event.id for event in queue.inspect.events(name="Processed")]
        assert len(ids) == len(set(ids)) == 24


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_overrun_is_charged_to_the_turns_of_a_walk_in_progress(store_uri: str, at: int) -> None:
    """In a ring with paths, an end with an overrun does not wait for the whole walk; its later turns know the charge."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("r", RingConfig(service_weight=LIMIT, paths=True, ordered=False))
    with MessageQueue(store_uri, "r") as queue, MessageQueue(store_uri, "r") as other:
        queue.enqueue_messages("a/b", [b"%d" % n for n in range(4)])
        queue.enqueue_messages("c/d", [b"%d" % n for n in range(4)])
        block = queue.blocks.plan(limit=Weight(8, 1 << 20))
        assert {claim.origin for claim in block.claims} == {"a/b", "c/d"}
        for origin in ("a/b", "a/e", "c/d"):
            queue.enqueue_messages(origin, [b"late %d" % n for n in range(4)])
        before = deficits(queue)
        left = serve_and_end(queue, other, [block], at, Done(used=Weight(300, 1)))
        assert left == [0] * (at - 1) + [1] + [0] * (len(left) - at)
        assert len(left) > at
        assert queue.check() == []
        after = deficits(queue)
        for name in ("a/b", "a/", "c/d", "c/"):
            assert after[name] < before.get(name, 0) - 50_000, (name, before, after)


def blocks_of(queue: MessageQueue, count: int) -> list[Block]:
    """Return blocks of two messages each, of queues of their own."""
    for number in range(count):
        queue.enqueue_messages(f"held-{number}", [b"%d 1" % number, b"%d 2" % number])
    return [queue.blocks.plan(limit=Weight(2, 1 << 20)) for _ in range(count)]


def test_a_service_applies_ends_no_longer_than_a_slice_takes(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ends others record, the queues that the service holds wait for about a slice."""
    upgrade(parse(store_uri))
    now, apply = 0.0, BlockSettler._apply

    def slow(self: BlockSettler, *arguments: Any) -> None:
        nonlocal now
        now += 0.4
        apply(self, *arguments)

    monkeypatch.setattr(BlockSettler, "_apply", slow)
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("r", RingConfig(service_weight=LIMIT))
    with MessageQueue(store_uri, "r") as queue, MessageQueue(store_uri, "r") as other:
        blocks = blocks_of(queue, 10)
        queue.enqueue_messages("served", [b"served %d" % n for n in range(6)])
        monkeypatch.setattr("airflow_mq.engine.queue.service.time", SimpleNamespace(monotonic=lambda: now))
        assert serve_and_end(queue, other, blocks, 1, Done()) == [10, 7, 4, 1, 0, 0]
        assert_done_once(queue, 26)


def test_the_ring_is_free_between_the_ends_that_a_service_leaves(
    store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of its last slice are applied one by one, until another process takes the ring."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("r", RingConfig(service_weight=LIMIT))
    with MessageQueue(store_uri, "r") as queue, MessageQueue(store_uri, "r") as other:
        blocks, left = blocks_of(queue, 6), list[int]()
        queue.enqueue_message("served", b"served")

        def take() -> None:
            left.append(ends(other))
            if left == [5, 4, 3]:
                # It does not apply ends itself.
                with other.session.store.writing() as unit:
                    locked = unit.lock(other.session.ring_id)
                    assert locked.state.lease_token is None
                    unit.rings.take_lease(other.session.ring_id, TOKEN, locked.now + 30_000_000, "host/1 other")

        monkeypatch.setattr(queue.session.store, "rest", take)
        serve_and_end(queue, other, blocks, 1, Done())
        assert left == [5, 4, 3, 3]
        assert ends(other) == 3
        drop_lease(other.session, TOKEN)
        assert_done_once(queue, 13)


def assert_done_once(queue: MessageQueue, count: int) -> None:
    queue.service_queues(lambda delivery: None)
    assert ends(queue) == 0
    assert queue.check() == []
    ids = [event.id for event in queue.inspect.events(name="Processed")]
    assert len(ids) == len(set(ids)) == count


def serve_and_end(
    queue: MessageQueue, other: MessageQueue, blocks: Sequence[Block], at: int, outcome: Outcome
) -> list[int]:
    """Service the ring in slices of one message, and end blocks during the n-th; return how many ends each one met."""
    left: list[int] = []

    def end() -> None:
        for block in blocks:
            other.blocks.report(
                block,
                [Report(one.origin, one.page, one.first, one.first + len(one) - 1, outcome) for one in block.batches()],
            )
            other.blocks.settle(block)

    with ThreadPoolExecutor(1) as threads:

        def processor(delivery: object) -> None:
            if len(left) == at - 1:
                threads.submit(end).result()
            left.append(threads.submit(ends, other).result())

        queue.service_queues(processor, slice_messages=1)
    return left


def deficits(queue: MessageQueue) -> dict[str, int]:
    with queue.session.store.reading() as unit:
        stored = queue.session.stored_working_set(unit).reading
        rows = stored.books(["a/b", "a/e", "c/d"], unit.now())
        groups = {row[0]: row[1] for row in stored.groups()}
    return {**{row.origin: row.deficit for row in rows}, **groups}
