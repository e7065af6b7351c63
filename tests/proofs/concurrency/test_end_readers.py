"""Readers show recorded ends as done: what each of them returns does not change when the ends are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, RingConfig, Weight
from airflow_mq.engine.queue.blocks.settlement import BlockSettler
from airflow_mq.engine.queue.inspect.queues import QueueState
from airflow_mq.engine.queue.inspect.reasons import Explanation
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.primitives import as_json
from tests.holding import drop_lease, take_lease
from tests.proofs.model.clock import Clock

from .test_end_parts import LIMIT, RINGS, TOKEN, ends, reports

pytestmark = pytest.mark.concurrency

ORIGINS = ("a/x", "a/y", "b", "c", "empty", "none", "sent")
SEED = b"seed"


def states(found: Iterable[QueueState]) -> list[QueueState]:
    """Return states of queues. Only an end that is applied dates the messages that it sends."""
    return [replace(state, oldest=None, age=None) if state.origin == "sent" else state for state in found]


def addresses(queue: MessageQueue, **filters: Any) -> list[Any]:
    return [replace(one, age=None) for one in queue.set_aside.list(**filters)]


def sentences(found: Iterable[Explanation]) -> list[str]:
    """Return explanations without last errors, which come from events."""
    return [one.sentence.partition("; the last error")[0].rstrip(".") for one in found]


#: Readings by name. Events, the ledger, deficits and times of sending follow when the ends are applied.
READERS: dict[str, Callable[[MessageQueue], Any]] = {
    "footprint": lambda queue: [queue.footprint(origin) for origin in ORIGINS],
    "footprint below": lambda queue: queue.footprint("a", below=True),
    "footprints": lambda queue: queue.footprints(),
    "queues": lambda queue: states(queue.inspect.queues()),
    "queues among": lambda queue: states(queue.inspect.queues(among=[(origin, "regular") for origin in ORIGINS])),
    "queues after": lambda queue: states(queue.inspect.queues(after="b", limit=2)),
    "oldest": lambda queue: [states(queue.inspect.backlog(oldest=limit).oldest) for limit in (1, 2, 10)],
    "backlog": lambda queue: [backlog(queue, deepest) for deepest in (0, 10)],
    "depths": lambda queue: depths(queue),
    "pages": lambda queue: [queue.inspect.pages(origin) for origin in ORIGINS],
    "ring": lambda queue: ring(queue),
    "put off": lambda queue: queue.inspect.put_off(),
    "ring order": lambda queue: queue.inspect.ring_order(),
    "shuffled order": lambda queue: queue.inspect.ring_order(seed=SEED),
    "pulse": lambda queue: replace(queue.inspect.pulse(10), newest=0),
    "peek": lambda queue: [
        [replace(one, sent_at=None) for one in queue.inspect.peek(origin, limit=100)] for origin in ORIGINS
    ],
    "waiting": lambda queue: [batch.payloads for batch in queue.inspect.waiting(*ORIGINS, limit=100)],
    "explain": lambda queue: sentences(queue.inspect.explain(origin, seed=SEED) for origin in ORIGINS),
    "stuck": lambda queue: sentences(queue.inspect.stuck(queue.inspect.ring().queues, queue.inspect.servicing())),
    "overdue": lambda queue: queue.inspect.servicing().of_queues(queue.inspect.ring().queues),
    "finds work": lambda queue: queue.inspect.finds_work(),
    "dry run": lambda queue: taken([queue.inspect.dry_run(seed=SEED)]),
    "forecast": lambda queue: taken(queue.inspect.forecast(4, seed=SEED)),
    "set aside": addresses,
    "set aside of an origin": lambda queue: addresses(queue, origin="b"),
    "set aside by reason": lambda queue: [addresses(queue, reason=one) for one in ("overweight", "attempts", "swept")],
    "set aside by block": lambda queue: [addresses(queue, block=number) for number in (1, 2)],
    "set aside by arrival": lambda queue: [addresses(queue, arrived=number) for number in (1, 2)],
    "set aside by age": lambda queue: [addresses(queue, older_than=seconds) for seconds in (0, 50, 5_000)],
    "set aside one by one": lambda queue: one_by_one(queue),
    "count of set-aside": lambda queue: [queue.set_aside.count(most) for most in (1, 3, 100)],
    "refusals": lambda queue: queue.set_aside.refusals(queue.set_aside.list()),
    "blocks": lambda queue: [(one.id, one.state) for one in queue.blocks.list()],
    "check": lambda queue: queue.check(),
}


def ring(queue: MessageQueue) -> Any:
    found = queue.inspect.ring()
    return replace(found, version=0, queues=states(found.queues))


def backlog(queue: MessageQueue, deepest: int) -> Any:
    found = queue.inspect.backlog(deepest)
    return replace(found, deepest=sorted(states(found.deepest), key=lambda state: state.origin))


def depths(queue: MessageQueue) -> Any:
    """Return what each queue holds. Only an end that is applied dates the messages that it sends."""
    found = [one._replace(sent=None) if one.name == "sent" else one for one in queue.inspect.depths()]
    return {one.name: one._replace(ahead=None) for one in found}


def one_by_one(queue: MessageQueue) -> list[Any]:
    found: list[Any] = []
    while some := queue.set_aside.list(limit=1, after=found[-1] if found else None):
        found += [one.address for one in some]
    return found


def taken(blocks: list[Any]) -> list[Any]:
    return [sorted((queue.origin, queue.messages) for queue in block.queues if queue.messages) for block in blocks]


@contextmanager
def a_ring(uri: str, kind: str, clock: Clock) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    """Yield two clients of a ring that the first one holds; the second one has recorded the ends of three blocks."""
    config = RingConfig(heap_size=40, service_weight=LIMIT, max_attempts=1, **RINGS[kind])  # type: ignore[arg-type]
    with MessageQueue(uri) as admin:
        admin.admin.create_ring("r", config)
    with MessageQueue(uri, "r", actor="holder") as holder, MessageQueue(uri, "r", actor="other") as other:
        holder.enqueue_message("b", b"old heavy", weight=Weight(5_000, 0))
        holder.enqueue_message("none", b"old heavy", weight=Weight(5_000, 0))
        holder.service_queues(lambda delivery: None)
        aside = holder.set_aside.list()
        clock.advance(10)
        holder.enqueue_messages("empty", [b"1", b"2"])
        for number in range(12):
            clock.advance(1)
            for origin in ("a/x", "a/y", "b"):
                holder.enqueue_message(origin, b"%s %d" % (origin.encode(), number))
        holder.enqueue_message("b", b"heavy", weight=Weight(5_000, 0))
        first = holder.blocks.plan()
        clock.advance(10)
        holder.enqueue_messages("c", [b"c 1", b"c 2", b"c 3"])
        holder.enqueue_message("a/y", b"late")
        second = holder.blocks.plan(limit=Weight(2, 1 << 20))
        by_hand = holder.blocks.plan_overweight(aside[1].address, Weight(10_000, 1 << 20))
        take_lease(holder.session, TOKEN)
        other.blocks.report(first, reports(first))
        other.blocks.settle(first)
        clock.advance(5)
        other.blocks.report(by_hand, [Report("none", 0, 0, 0, Done())])
        other.blocks.settle(by_hand)
        other.blocks.release(second)
        assert ends(other) == 3
        yield holder, other


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(RINGS))
def test_readings_do_not_change_when_ends_are_applied(store_uri: str, kind: str, clock: Clock) -> None:
    upgrade(parse(store_uri))
    with a_ring(store_uri, kind, clock) as (holder, other):
        before = {name: read(other) for name, read in READERS.items()}
        drop_lease(holder.session, TOKEN)
        holder.session.hold.apply_soon()
        assert ends(other) == 0
        after = {name: read(other) for name, read in READERS.items()}
        different = {name: (before[name], after[name]) for name in READERS if before[name] != after[name]}
        assert different == {}


#: Readings of named queues.
NAMED: dict[str, Callable[[MessageQueue, str], Any]] = {
    "footprint": lambda queue, origin: queue.footprint(origin),
    "queues": lambda queue, origin: states(queue.inspect.queues(among=[(origin, "regular")])),
    "pages": lambda queue, origin: queue.inspect.pages(origin),
    "peek": lambda queue, origin: [replace(one, sent_at=None) for one in queue.inspect.peek(origin)],
    "waiting": lambda queue, origin: [batch.payloads for batch in queue.inspect.waiting(origin, limit=100)],
    "set aside": lambda queue, origin: addresses(queue, origin=origin),
    "batches footprints": lambda queue, origin: queue.batches_footprints(origin, [b"x"], 100),
    "settings": lambda queue, origin: queue.inspect.origin_settings(origin),
}


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the blocks whose ends were applied, in memory or in the store."""
    blocks: list[int] = []
    replay = BlockSettler._replay

    def counted(self: BlockSettler, working_set: Any, end: Any, **options: Any) -> Any:
        blocks.append(end.row.number)
        return replay(self, working_set, end, **options)

    monkeypatch.setattr(BlockSettler, "_replay", counted)
    return blocks


@pytest.mark.parametrize("name", NAMED)
def test_a_reading_of_a_queue_applies_only_the_ends_that_concern_it(
    store_uri: str, name: str, clock: Clock, replayed: list[int]
) -> None:
    upgrade(parse(store_uri))
    with a_ring(store_uri, "ordered", clock) as (_, other):
        other.enqueue_message("apart", b"apart")
        numbers = {}
        for origin in ("apart", "a/x", "none", "sent"):
            replayed.clear()
            NAMED[name](other, origin)
            numbers[origin] = list(replayed)
        expected = {"apart": [], "a/x": [2], "none": [4], "sent": [2]}
        assert numbers == ({key: [] for key in expected} if name == "settings" else expected)
        replayed.clear()
        other.inspect.backlog()
        assert replayed == [2, 4, 3]


def test_a_damaged_end_disturbs_no_reader(store_uri: str, clock: Clock) -> None:
    """It is not foreseen: its messages stay in flight."""
    upgrade(parse(store_uri))
    with a_ring(store_uri, "ordered", clock) as (_, other):
        ring_id = other.session.ring_id
        assert other.footprint("sent").count > 0
        with other.session.store.writing() as unit:
            for end in unit.blocks.ends(ring_id):
                plain = {name: value for name, value in end.terms_json.items() if name != "sent"}
                unit.run("save_end", ring=ring_id, block=end.row.id, terms=as_json(plain), error="")
        for read in NAMED.values():
            for origin in ORIGINS:
                read(other, origin)
        assert other.footprint("sent").count == 0
