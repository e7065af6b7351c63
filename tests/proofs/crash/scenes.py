"""Scenes: the operation that a child performs when it is killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_mq import (
    BadFormat,
    Done,
    Message,
    MessageQueue,
    Overweight,
    RingConfig,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.engine.queue.sending.inline import Inline
from airflow_mq.engine.queue.values import Batch, Delivery, Report
from tests.conftest import SOAK

from .aftermath import child_of, processor

CONFIG = RingConfig(heap_size=160, service_weight=Weight(1_000, 100_000), max_stale=0)
GROUPED = replace(CONFIG, paths=True, rounds_per_block=100)
HEAVY = Weight(5_000, 0)
ORIGINS = ("a", "b", "c")


@dataclass
class State:
    """Initial state of a scene: sent messages, and a value for the child."""

    sent: list[bytes] = field(default_factory=list)
    handle: Any = None


@dataclass(frozen=True)
class Scene:
    """One operation, its preparation, and the retry of a caller that got no answer."""

    name: str
    act: Callable[[MessageQueue, State], object]
    prepare: Callable[[MessageQueue, State], object] = lambda queue, state: None
    repeat: Callable[[MessageQueue, State], object] = lambda queue, state: None
    #: Payloads that `act` sends, all or none.
    sends: Sequence[bytes] = ()
    listens: bool = False
    config: RingConfig = CONFIG


def names(word: str, count: int) -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(count)]


def mixed(queue: MessageQueue, state: State) -> None:
    """Fill three queues with light, heavy, expired and parent messages, in calls of several sizes."""
    for origin in ORIGINS:
        first, many, parents = names(f"one {origin}", 2), names(f"many {origin}", 9), names(f"parent {origin}", 3)
        for payload in first:
            queue.enqueue_message(origin, payload)
        queue.enqueue_messages(origin, many)
        queue.enqueue_messages(origin, parents)
        heavy, late = f"heavy {origin}".encode(), f"late {origin}".encode()
        queue.enqueue_message(origin, heavy, weight=HEAVY)
        queue.enqueue_message(origin, late, expires=0)
        state.sent += [*first, *many, *parents, heavy, late]


def in_groups(queue: MessageQueue, state: State) -> None:
    """Fill queues of groups at three levels; one queue has the name of a group."""
    queue.admin.set_origin("a", share=2)
    for origin in ("a", "a/x/1", "a/x/2", "b/1", "c"):
        payloads = names(f"one {origin}", 8)
        queue.enqueue_messages(origin, payloads)
        state.sent += payloads
    queue.blocks.settle(queue.blocks.plan(limit=Weight(7, 10_000)))


def planned_in_groups(queue: MessageQueue, state: State) -> None:
    in_groups(queue, state)
    block = queue.blocks.plan(limit=Weight(9, 10_000))
    queue.blocks.report(block, [batch.answer(Done(used=Weight(20, 20))) for batch in block.batches()])
    state.handle = block.token


def paused_and_served(queue: MessageQueue, state: State) -> None:
    queue.admin.pause("a", "for now", below=True)
    queue.service_queues(fickle, slice_messages=4)


def set_aside(queue: MessageQueue, state: State) -> None:
    """Set heavy messages aside in pages behind the window."""
    payloads = names("heavy", 6)
    queue.enqueue_messages("a", payloads, weight=HEAVY)
    queue.enqueue_messages("a", names("light", 5))
    state.sent += [*payloads, *names("light", 5)]
    queue.service_queues(processor)
    state.handle = [aside.address for aside in queue.set_aside.list()]
    assert len(state.handle) == 6


def limit_raised(queue: MessageQueue, state: State) -> None:
    """Raise the limit above the set-aside messages."""
    set_aside(queue, state)
    queue.admin.change_ring(service_weight=Weight(6_000, 100_000))


def expiring(queue: MessageQueue, state: State) -> None:
    """Let set-aside messages exceed their maximum age."""
    set_aside(queue, state)
    queue.admin.change_ring(set_aside_expires=1e-6)


def planned(queue: MessageQueue, state: State) -> None:
    mixed(queue, state)
    state.handle = queue.blocks.plan().token


def urgent(queue: MessageQueue, state: State) -> None:
    """Enqueue messages of both priorities; a block takes only a part."""
    mixed(queue, state)
    for origin in ORIGINS:
        high = [*names(f"high {origin}", 6), f"parent high {origin}".encode()]
        queue.enqueue_messages(origin, high, priority="high")
        state.sent += high
    heavy = names("heavy high", 2)
    queue.enqueue_messages("a", heavy, weight=HEAVY, priority="high")
    state.sent += heavy


def urgent_reported(queue: MessageQueue, state: State) -> None:
    urgent(queue, state)
    block = queue.blocks.plan(limit=Weight(20, 9_000))
    reports = [batch.answers([Yield("not now"), *[Done()] * (len(batch) - 1)]) for batch in block.batches(["a"])]
    queue.blocks.report(block, [one for handle in reports for one in handle])
    queue.blocks.report(block, [batch.answer() for batch in block.batches(["b"])])
    state.handle = block.token


def answers(queue: MessageQueue, token: str) -> list[Report]:
    """Return one report of each outcome for a block, and none for its last queue."""
    reports: list[Report] = []
    for batch in queue.blocks.get(token).batches(["a", "b"]):
        for index, payload in enumerate(batch.payloads):
            outcome: Any = Done(used=Weight(2, 2))
            if payload.startswith(b"parent"):
                outcome = Done(enqueue=[("children", child_of(payload))])
            elif payload == b"many a 1":
                outcome = BadFormat()
            elif payload == b"many a 2":
                outcome = Overweight(HEAVY)
            elif payload == b"many b 5":
                outcome = Yield("not now")
            reports.append(Report(batch.origin, batch.page, batch.first + index, batch.first + index, outcome))
    return reports


def reported(queue: MessageQueue, state: State) -> None:
    planned(queue, state)
    queue.blocks.report(state.handle, answers(queue, state.handle))


def swept(queue: MessageQueue, state: State) -> None:
    mixed(queue, state)
    queue.sweep_queue("a")


def claimed_by_hand(queue: MessageQueue, state: State) -> None:
    set_aside(queue, state)
    block = queue.blocks.plan_overweight(state.handle[0], Weight(9_000, 9_000))
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    state.handle = block.token


def fickle(delivery: Delivery) -> Any:
    """Answer with each kind of outcome once."""
    if delivery.payload == b"many a 1":
        return BadFormat()
    if delivery.payload == b"many b 4":
        return Yield("not now")
    return processor(delivery)


def in_batches(batch: Batch) -> Any:
    return [
        Done(enqueue=[("children", child_of(payload))]) if payload.startswith(b"parent") else None
        for payload in batch.payloads
    ]


def weigh(origin: str, payloads: Sequence[bytes]) -> list[Weight]:
    return [HEAVY if payload.startswith(b"heavy") else Weight(1, len(payload)) for payload in payloads]


def leased(queue: MessageQueue, state: State) -> None:
    mixed(queue, state)
    tokens = [queue.leases.view(origin).try_next() for origin in ("a", "b", "a")]
    state.handle = [str(token) for token in tokens if token is not None]
    assert len(state.handle) == 2


def leased_urgent(queue: MessageQueue, state: State) -> None:
    """Lease the high messages of two queues, which come first."""
    urgent(queue, state)
    tokens = [queue.leases.view(origin).try_next() for origin in ("a", "b")]
    assert all(token is not None and token.address.priority == "high" for token in tokens)
    state.handle = [str(token) for token in tokens]


def bounded(queue: MessageQueue, state: State) -> None:
    """Allow less for one message than the waiting messages need."""
    mixed(queue, state)
    queue.admin.change_ring(max_message_size=7, most_of_limit=0.5)


def transferred(queue: MessageQueue, state: State) -> None:
    """Transfer messages in a caller's transaction, without settling them."""
    leased(queue, state)
    push = queue.commands(None).transfer(state.handle, "onward")
    with queue.store.writing() as unit:
        push.write(unit)


def passed_on(queue: MessageQueue, state: State) -> None:
    """Delete the pages that had the transferred messages, while these are leased."""
    transferred(queue, state)
    queue.service_queues(processor)
    queue.admin.housekeep()
    queue.service_queues(processor)
    queue.enqueue_messages("b", names("more", 2))
    state.sent += names("more", 2)


def enqueue_keyed(queue: MessageQueue, state: State) -> None:
    queue.enqueue_messages([("a", Message(payload, key=payload.decode())) for payload in names("keyed", 4)])


def chosen(points: Sequence[str], *, everywhere: bool = True) -> list[int]:
    """Return the first and last position of each name.

    :param everywhere: without it, only those that `spared` leaves
    """
    places: dict[str, list[int]] = {}
    for number, name in enumerate(points):
        places.setdefault(name, []).append(number)
    numbers = {position for positions in places.values() for position in (positions[0], positions[-1])}
    return sorted(numbers if everywhere else numbers - spared(points))


def spared(points: Sequence[str]) -> set[int]:
    """Return the statements within transactions: of each, all but the first and the last; none in `make soak`.

    A store undoes the transaction of a dead client in the same way wherever that was.
    """
    found: set[int] = set()
    began = None
    for number, name in enumerate(() if SOAK else points):
        if name == "begin":
            began = number
        elif name == "commit" and began is not None:
            found.update(range(began + 2, number - 1))
            began = None
    return found


AT_ONCE = Inline(processor, Weight(50, 1_000))
BULK, SINGLE, KEYED = names("bulk", 40), names("single", 1), names("keyed", 4)
PAIRS = [(f"origin {number % 5}", payload) for number, payload in enumerate(BULK)]

SCENES = [
    Scene("enqueue", lambda q, s: q.enqueue_message("a", SINGLE[0]), sends=SINGLE),
    Scene("enqueue with headers", lambda q, s: q.enqueue_message("a", SINGLE[0], headers={"trace": "1"}), sends=SINGLE),
    Scene("enqueue bulk", lambda q, s: q.enqueue_messages("a", BULK), sends=BULK),
    Scene("enqueue many origins", lambda q, s: q.enqueue_messages(PAIRS), sends=BULK),
    Scene("enqueue keyed", enqueue_keyed, repeat=enqueue_keyed, sends=KEYED),
    Scene("enqueue high", lambda q, s: q.enqueue_messages(PAIRS, priority="high"), mixed, sends=BULK),
    Scene("enqueue inline", lambda q, s: q.enqueue_message("a", SINGLE[0], inline=AT_ONCE), sends=SINGLE),
    Scene("plan urgent", lambda q, s: q.blocks.plan(limit=Weight(20, 9_000)), urgent),
    Scene("settle urgent", lambda q, s: q.blocks.settle(s.handle), urgent_reported, lambda q, s: q.blocks.settle(s.handle)),
    Scene("service urgent", lambda q, s: q.service_queues(fickle, slice_messages=7), urgent, listens=True),
    Scene("sweep urgent", lambda q, s: q.sweep_queue("b"), urgent),
    Scene("enqueue delayed", lambda q, s: q.enqueue_messages("a", BULK, not_before=0), sends=BULK),
    Scene("enqueue and cut", lambda q, s: q.enqueue_messages(PAIRS), mixed, sends=BULK, listens=True),
    Scene("plan", lambda q, s: q.blocks.plan(key="k"), mixed, lambda q, s: q.blocks.plan(key="k")),
    Scene("plan in rotation", lambda q, s: q.blocks.plan(), mixed, config=replace(CONFIG, order="rotation")),
    Scene("plan in groups", lambda q, s: q.blocks.plan(limit=Weight(9, 10_000)), in_groups, config=GROUPED),
    Scene("settle in groups", lambda q, s: q.blocks.settle(s.handle), planned_in_groups,
          lambda q, s: q.blocks.settle(s.handle), config=GROUPED),
    Scene("pause a group and service", paused_and_served, in_groups, config=GROUPED),
    Scene("plan relaxed", lambda q, s: q.blocks.plan(limit=Weight(9, 9_000)), planned, config=replace(CONFIG, ordered=False)),
    Scene("plan with a weigher", lambda q, s: q.blocks.plan(weigher=weigh), mixed),
    Scene("plan with size limits", lambda q, s: q.blocks.plan(), bounded),
    Scene("report", lambda q, s: q.blocks.report(s.handle, answers(q, s.handle)), planned),
    Scene("settle", lambda q, s: q.blocks.settle(s.handle), reported, lambda q, s: q.blocks.settle(s.handle)),
    Scene("release", lambda q, s: q.blocks.release(s.handle), reported, lambda q, s: q.blocks.release(s.handle)),
    Scene("renew", lambda q, s: q.blocks.renew(s.handle, 60), planned),
    Scene("service", lambda q, s: q.service_queues(fickle, slice_messages=7), mixed),
    Scene("service batches", lambda q, s: q.service_queues(batch_processor(in_batches), slice_messages=9), mixed),
    Scene("service and cut", lambda q, s: q.service_queues(fickle, slice_messages=12), mixed, listens=True),
    Scene("execute", lambda q, s: q.execute_overweight(s.handle[1], processor), set_aside),
    Scene("plan by hand", lambda q, s: q.blocks.plan_overweight(s.handle[2], Weight(9_000, 9_000)), set_aside),
    Scene("settle by hand", lambda q, s: q.blocks.settle(s.handle), claimed_by_hand, lambda q, s: q.blocks.settle(s.handle)),
    Scene("discard", lambda q, s: q.set_aside.discard(s.handle[:3], "not wanted"), set_aside),
    Scene("requeue", lambda q, s: q.set_aside.requeue(s.handle[:3], "raised"), limit_raised),
    Scene("requeue all", lambda q, s: q.set_aside.requeue_all("raised"), limit_raised),
    Scene("discard all", lambda q, s: q.set_aside.discard_all("not wanted", origin="a"), set_aside),
    Scene("expire", lambda q, s: q.admin.housekeep(), expiring),
    Scene("reap", lambda q, s: q.reap_page("a", 0, "old"), swept),
    Scene("cull", lambda q, s: q.set_aside.cull("old"), swept),
    Scene("sweep", lambda q, s: q.sweep_queue("b"), mixed),
    Scene("force head", lambda q, s: q.admin.force_set_head("b"), mixed),
    Scene("pause", lambda q, s: q.admin.pause("a", "for now"), mixed),
    Scene("take", lambda q, s: q.leases.next(), mixed),
    Scene("complete", lambda q, s: q.leases.complete(s.handle), leased),
    Scene("give back", lambda q, s: q.leases.token(s.handle[0]).give_back(), leased),
    Scene("complete urgent", lambda q, s: q.leases.complete(s.handle), leased_urgent),
    Scene("transfer urgent", lambda q, s: q.leases.transfer(s.handle, "onward"), leased_urgent),
    Scene("transfer", lambda q, s: q.leases.transfer(s.handle, "onward"), leased),
    Scene("settle transferred", lambda q, s: q.admin.housekeep(), transferred),
    Scene("take transferred", lambda q, s: q.leases.view("onward").try_next(), transferred),
    Scene("service transferred", lambda q, s: q.service_queues(fickle, slice_messages=2), passed_on),
    Scene("change ring", lambda q, s: q.admin.change_ring(heap_size=512), mixed),
]  # fmt: skip
