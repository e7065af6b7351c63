"""Set-aside messages: listing, requeuing, discarding in bulk, expiry, and thresholds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_mq import (
    Address,
    LinearWeigher,
    Message,
    MessageQueue,
    Overweight,
    RingConfig,
    Weight,
    Yield,
)
from airflow_mq.engine.queue import set_aside
from airflow_mq.engine.queue.holding import Hold
from airflow_mq.engine.queue.service import service_lease
from airflow_mq.engine.rules.errors import (
    AlreadyProcessed,
    Busy,
    ConfigRefused,
    InFlight,
    InvalidInput,
    NoPage,
    Queued,
    QueuePaused,
)
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.store.blocks import Blocks
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events, serve

HEAVY = Weight(700_000, 5)
WIDE = Weight(10**9, 1 << 40)
RAISED = Weight(800_000, 1 << 30)


def settle(queue: MessageQueue) -> int:
    """Settle a block whose messages are all done, and return its id."""
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    return block.id


def raised(queue: MessageQueue) -> MessageQueue:
    queue.admin.change_ring(service_weight=RAISED)
    return queue


@pytest.fixture
def heavy(queue: MessageQueue) -> Address:
    """Return a message that was set aside between two processed ones."""
    queue.enqueue_message("acme", b"first")
    queue.enqueue_message("acme", b"heavy", weight=HEAVY, headers={"trace": "17"})
    queue.enqueue_message("acme", b"last")
    settle(queue)
    return queue.set_aside.list()[0].address


# Listing.


def test_list_filters_by_arrival_block_and_block(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"one", weight=HEAVY)
    queue.admin.pause("b")
    queue.enqueue_message("b", b"two", weight=HEAVY)
    first = settle(queue)
    queue.admin.resume("b")
    queue.enqueue_message("c", b"three", weight=HEAVY)
    second = settle(queue)
    blocks = {aside.address.origin: (aside.arrived_block, aside.block) for aside in queue.set_aside.list()}
    assert blocks == {"a": (first, first), "b": (first, second), "c": (second, second)}
    assert [aside.address.origin for aside in queue.set_aside.list(block=second)] == ["b", "c"]
    assert [aside.address.origin for aside in queue.set_aside.list(arrived=first)] == ["a", "b"]
    assert [aside.address.origin for aside in queue.set_aside.list(arrived=first, block=second)] == ["b"]
    assert [aside.address.origin for aside in queue.set_aside.list(arrived=second, block=second, limit=1)] == ["c"]
    assert queue.set_aside.list(block=first, origin="b") == []
    assert queue.set_aside.list(block=first + 1000) == []


def test_age_is_counted_from_arrival(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"old", weight=HEAVY)
    with queue.store.writing() as unit:
        unit.connection.execute(f"UPDATE {queue.store.prefix}inbox SET sent_at = sent_at - 100000000")  # type: ignore[attr-defined]
    settle(queue)
    queue.enqueue_message("b", b"new", weight=HEAVY)
    settle(queue)
    old, new = queue.set_aside.list()
    assert old.age is not None and new.age is not None and old.age >= new.age + 100
    assert old.arrived_at is not None and old.at is not None and (old.at - old.arrived_at).total_seconds() >= 100
    assert [aside.address.origin for aside in queue.set_aside.list(older_than=old.age - 50)] == ["a"]
    assert queue.set_aside.list(older_than=3600) == []


def test_list_filters_by_reason_and_pages_through_results(make_queue: Maker) -> None:
    queue = make_queue(heap_size=30, max_attempts=1, order="rotation")
    queue.enqueue_messages([(f"o{number % 4}", b"%02d" % number) for number in range(40)], weight=HEAVY)
    settle(queue)
    queue.enqueue_messages("o1", [b"x", b"y"])
    serve(queue, lambda delivery: Yield())
    queue.enqueue_messages("o2", [b"p", b"q"])
    queue.sweep_queue("o2")
    counts = {
        reason: len(queue.set_aside.list(reason=reason, limit=1000)) for reason in ("overweight", "attempts", "swept")
    }
    assert counts == {"overweight": 40, "attempts": 2, "swept": 2}
    everything = queue.set_aside.list(limit=1000)
    assert everything == sorted(everything, key=lambda aside: aside.address) and len(everything) == 44
    pages: list[Any] = []
    while more := queue.set_aside.list(limit=7, after=pages[-1].address if pages else None):
        pages += more
    assert [aside.address for aside in pages] == [aside.address for aside in everything]
    swept = queue.set_aside.list(reason="swept")
    assert all(aside.age is not None and aside.arrived_at is not None for aside in swept)
    assert [aside.address for aside in queue.set_aside.list("o2", reason="swept", limit=1)] == [swept[0].address]


@pytest.mark.parametrize(
    "wanted",
    [
        {"reason": "because"},
        {"block": -1},
        {"arrived": "x"},
        {"older_than": -1},
        {"older_than": "x"},
        {"origin": ""},
        {"limit": -1},
    ],
)
def test_list_rejects_invalid_filters(queue: MessageQueue, wanted: Any) -> None:
    with pytest.raises(InvalidInput):
        queue.set_aside.list(**wanted)


# Requeuing.


def test_requeued_message_keeps_its_arrival_time(queue: MessageQueue, heavy: Address) -> None:
    (before,) = queue.set_aside.list()
    queue.enqueue_message("acme", b"later")
    raised(queue)
    requeued = queue.set_aside.requeue(heavy, "the limit was raised")
    assert requeued.stayed == []
    (moved,) = requeued.moved
    assert moved.address == heavy and moved.moved is not None
    assert (queue.set_aside.list(), queue.footprint("acme").count, queue.footprint("acme").size) == (
        [],
        2,
        10 + len("trace17"),
    )
    later, back = queue.inspect.peek("acme")
    assert (later.payload, back.payload, back.address) == (b"later", b"heavy", moved.moved)
    assert (back.headers, back.weight, back.sent_at) == ({"trace": "17"}, HEAVY, before.arrived_at)
    event = list(queue.inspect.events())[-1]
    assert (event.name, event.actor, event.id) == ("Requeued", "tester", message_id(b"heavy"))
    assert event.moved_to == (moved.moved.page, moved.moved.index) and event.why.startswith("the limit was raised")
    assert queue.check() == []
    assert serve(queue) == [("acme", b"later"), ("acme", b"heavy")]


def test_requeue_reports_why_a_message_stays(queue: MessageQueue, heavy: Address) -> None:
    events = logged_events(queue)
    (stayed,) = queue.set_aside.requeue([heavy]).stayed
    assert (stayed.address, stayed.moved) == (heavy, None)
    assert "weighs 700 s · 5 B, more than the 10 min" in stayed.why
    assert (logged_events(queue), [aside.address for aside in queue.set_aside.list()]) == (events, [heavy])


def test_requeue_uses_the_weight_that_a_processor_reported(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"wolf in sheep's clothing")
    serve(queue, lambda delivery: Overweight(HEAVY))
    (aside,) = queue.set_aside.list()
    assert queue.set_aside.requeue(aside.address).moved == []
    raised(queue)
    assert len(queue.set_aside.requeue(aside.address).moved) == 1
    assert queue.inspect.peek("acme")[0].weight == HEAVY
    # The queue's own weigher finds it light; requeuing may use it.
    queue.admin.change_ring(service_weight=Weight(600_000, 1 << 30))
    serve(queue)
    (aside,) = queue.set_aside.list()
    assert queue.set_aside.requeue(aside.address).moved == []


def test_requeue_with_weigh_uses_the_current_weigher(make_queue: Maker) -> None:
    queue = make_queue(weigher=LinearWeigher(Weight(700_000, 0), Weight(0, 0)))
    queue.enqueue_message("acme", b"as it seemed")
    serve(queue)
    (aside,) = queue.set_aside.list()
    queue.admin.change_ring(weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)))
    assert queue.set_aside.requeue(aside.address).moved == []
    assert len(queue.set_aside.requeue(aside.address, weigh=True).moved) == 1
    assert serve(queue) == [("acme", b"as it seemed")]


def test_requeue_keeps_attempts_and_applies_the_current_limit(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=2, order="rotation")
    queue.enqueue_message("acme", b"shy")
    for _ in range(2):
        serve(queue, lambda delivery: Yield())
    (aside,) = queue.set_aside.list(reason="attempts")
    assert "tried 2 times, and 2 are allowed" in queue.set_aside.requeue(aside.address).stayed[0].why
    queue.admin.change_ring(max_attempts=3)
    assert len(queue.set_aside.requeue(aside.address).moved) == 1
    assert queue.inspect.peek("acme")[0].attempts == 2


def test_most_of_an_origin_limits_its_messages(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", most=Weight(10, 100))
    queue.enqueue_message("acme", b"much", weight=Weight(11, 1))
    settle(queue)
    (aside,) = queue.set_aside.list()
    assert (aside.reason, aside.limit) == ("most", Weight(10, 100))
    assert "that its origin may have" in queue.set_aside.requeue(aside.address).stayed[0].why
    queue.admin.set_origin("acme", most=Weight(11, 100))
    assert len(queue.set_aside.requeue(aside.address).moved) == 1


def test_requeue_of_many_is_all_or_nothing(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"%d" % number for number in range(10)], weight=HEAVY)
    queue.enqueue_messages("b", [b"x", b"y"], weight=Weight(900_000, 1))
    settle(queue)
    raised(queue)
    addresses = [aside.address for aside in queue.set_aside.list()]
    with pytest.raises(NoPage):
        queue.set_aside.requeue([*addresses, Address("c", 0, 0)])
    assert [aside.address for aside in queue.set_aside.list()] == addresses
    requeued = queue.set_aside.requeue(addresses)
    assert (len(requeued.moved), [aside.address.origin for aside in requeued.stayed]) == (10, ["b", "b"])
    assert [payload for _, payload in serve(queue, limit=WIDE)] == [b"%d" % number for number in range(10)]


def test_requeue_cuts_nothing_of_a_paused_queue(queue: MessageQueue, heavy: Address) -> None:
    queue.enqueue_message("acme", b"later")
    queue.admin.pause("acme")
    queue.admin.change_ring(service_weight=Weight(10 * HEAVY.time, 1 << 20))
    assert len(queue.set_aside.requeue_all().stayed) == 1
    with pytest.raises(QueuePaused):
        queue.set_aside.requeue(heavy)
    with queue.session.snapshot(stored=True) as (_, working_set):
        assert working_set.book("acme").message_count == 1


@pytest.mark.parametrize("all_at_once", [False, True])
def test_requeue_cuts_what_was_sent_before_in_bounded_transactions(
    queue: MessageQueue, heavy: Address, monkeypatch: pytest.MonkeyPatch, all_at_once: bool
) -> None:
    monkeypatch.setattr(set_aside, "AT_ONCE", 1)
    for number in range(45):
        queue.enqueue_message("acme", b"%d" % number)
    queue.admin.change_ring(service_weight=Weight(10 * HEAVY.time, 1 << 20))
    transaction, cut = queue.session.hold.transaction, []

    @contextmanager
    def watched() -> Iterator[Any]:
        with transaction() as (unit, working_set):
            yield unit, working_set
            cut.append(sum(one.messages for one in working_set.changes.cut.values()))

    monkeypatch.setattr(queue.session.hold, "transaction", watched)
    assert len((queue.set_aside.requeue_all() if all_at_once else queue.set_aside.requeue(heavy)).moved) == 1
    assert cut == [20, 20, 5, 1]
    assert [payload for _, payload in serve(queue)] == [*(b"%d" % number for number in range(45)), b"heavy"]


def test_requeue_all_and_discard_all_work_in_several_transactions(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mq.engine.queue.set_aside.AT_ONCE", 7)
    queue = make_queue(heap_size=60)
    queue.enqueue_messages([(f"o{number % 3}", b"%02d" % number) for number in range(30)], weight=HEAVY)
    first = settle(queue)
    queue.enqueue_messages("o9", [b"p", b"q"])
    queue.sweep_queue("o9")
    queue.admin.pause("o1", "not now")
    raised(queue)
    requeued = queue.set_aside.requeue_all("raised", block=first)
    assert len(requeued.moved) == 20
    assert {aside.address.origin for aside in requeued.stayed} == {"o1"} and "paused" in requeued.stayed[0].why
    everything = queue.set_aside.requeue_all("raised")
    assert len(everything.moved) == 0, "swept messages are requeued only by reason"
    assert (everything.swept, everything.gone) == (2, 0)
    assert everything.exclusions() == ["2 swept messages left out: only a selection of reason 'swept' requeues those."]
    assert len(queue.set_aside.requeue_all("raised", reason="swept").moved) == 2
    assert queue.check() == []
    seen = serve(queue, limit=WIDE)
    assert [payload for origin, payload in seen if origin == "o0"] == [b"%02d" % number for number in range(0, 30, 3)]
    assert len(seen) == 22
    assert queue.set_aside.discard_all("gone", origin="o1") == 0
    queue.admin.resume("o1")
    with pytest.raises(InvalidInput):
        queue.set_aside.discard_all("all of it")
    with pytest.raises(InvalidInput):
        queue.set_aside.discard_all("", origin="o1")
    assert queue.set_aside.discard_all("gone", origin="o1") == 10
    assert (queue.set_aside.list(), queue.footprints()) == ([], [])
    assert {event.actor for event in queue.inspect.events(name="Discarded")} == {"tester"}


def test_requeue_rejects_messages_that_are_not_set_aside_or_are_paused(queue: MessageQueue, heavy: Address) -> None:
    queue.enqueue_message("acme", b"next")
    for address, error in (
        (Address("acme", 0, 0), AlreadyProcessed), (Address("nobody", 0, 0), NoPage), (Address("acme", 1, 0), Queued),
    ):  # fmt: skip
        with pytest.raises(error):
            queue.set_aside.requeue(address)
    block = queue.blocks.plan_overweight(heavy, RAISED)
    with pytest.raises(InFlight):
        queue.set_aside.requeue(heavy)
    queue.blocks.release(block)
    queue.admin.pause("acme")
    with pytest.raises(QueuePaused):
        queue.set_aside.requeue(heavy)
    queue.admin.change_ring(service_weight=None)
    with pytest.raises(InvalidInput, match="limit="):
        queue.set_aside.requeue(heavy)
    queue.admin.resume("acme")
    assert len(queue.set_aside.requeue(heavy, limit=RAISED).moved) == 1


def test_requeue_works_while_a_block_is_in_flight(queue: MessageQueue, heavy: Address) -> None:
    queue.enqueue_messages("acme", [b"p", b"q"])
    block = queue.blocks.plan()
    raised(queue)
    assert len(queue.set_aside.requeue(heavy).moved) == 1
    assert queue.check() == []
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    assert queue.blocks.settle(block).processed == 2
    assert queue.check() == []
    assert serve(queue) == [("acme", b"heavy")]


def test_requeued_message_keeps_its_expiry(queue: MessageQueue, clock: Clock) -> None:
    queue.enqueue_message("acme", b"milk", weight=HEAVY, expires=10)
    settle(queue)
    raised(queue)
    assert len(queue.set_aside.requeue_all().moved) == 1
    clock.advance(10)
    assert serve(queue) == []
    assert [event.name for event in queue.inspect.events()][-1] == "Expired"


# Policies.


def test_set_aside_messages_expire_by_policy(queue: MessageQueue, heavy: Address) -> None:
    queue.enqueue_messages("b", [b"x"])
    queue.sweep_queue("b")
    assert queue.admin.housekeep() == 0
    assert len(queue.set_aside.list()) == 2, "off by default"
    queue.admin.change_ring(set_aside_expires=3600)
    assert queue.set_aside.expire() == 0
    queue.admin.change_ring(set_aside_expires=0.01)
    time.sleep(0.05)
    queue.admin.pause("b")
    queue.admin.housekeep()
    assert [aside.address.origin for aside in queue.set_aside.list()] == ["b"], "policies skip paused queues"
    queue.admin.resume("b")
    assert queue.set_aside.expire() == 1
    assert (queue.set_aside.list(), queue.footprints()) == ([], [])
    events = [event for event in queue.inspect.events() if event.name == "Expired"]
    assert [(event.origin, event.actor) for event in events] == [
        ("acme", "policy set_aside_expires"), ("b", "policy set_aside_expires"),
    ]  # fmt: skip
    assert "longer than" in events[0].why


def test_unreadable_messages_are_discarded_by_policy(make_queue: Maker) -> None:
    queue = make_queue(max_attempts=1, order="rotation")
    queue.enqueue_messages("acme", [b"???", Message(b"heavy", weight=HEAVY)])
    serve(queue, lambda delivery: Yield())
    queue.admin.housekeep()
    assert len(queue.set_aside.list()) == 2
    queue.admin.change_ring(discard_unreadable=True)
    queue.admin.housekeep()
    assert [aside.reason for aside in queue.set_aside.list()] == ["overweight"]
    (event,) = [event for event in queue.inspect.events() if event.name == "Discarded"]
    assert (event.actor, event.why) == ("policy discard_unreadable", "set aside after too many attempts")


def test_cull_records_discarded_messages(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", heap_size=10, max_stale=1)
    queue.enqueue_messages("acme", [b"abcd", b"efgh", b"ijkl"], weight=HEAVY)
    serve(queue)
    queue.admin.housekeep()
    assert len(queue.set_aside.list()) == 3, "housekeeping culls nothing by itself"
    assert queue.set_aside.cull() == 2
    events = [event for event in queue.inspect.events() if event.name == "Discarded"]
    assert [(event.id, event.actor) for event in events] == [
        (message_id(b"abcd"), "tester"), (message_id(b"efgh"), "tester")
    ]  # fmt: skip


def test_culling_behind_another_holder_of_the_ring_is_refused(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", heap_size=10, max_stale=1)
    queue.enqueue_messages("acme", [b"abcd", b"efgh", b"ijkl"], weight=HEAVY)
    serve(queue)
    other = make_queue(patience=0.1)
    with service_lease(queue.session) as lease:
        lease.take()
        with pytest.raises(Busy):
            other.set_aside.cull()
    assert other.set_aside.cull() == 2


# Thresholds.


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle"])
@pytest.mark.parametrize("way", ["plan", "service", "metering"])
def test_thresholds_set_aside_messages_that_fit_the_limit(make_queue: Maker, order: str, way: str) -> None:
    queue = make_queue(
        order=order, max_message_size=10, most_of_limit=0.5, service_weight=Weight(100, 1000),
        weigher=LinearWeigher(Weight(1, 0), Weight(0, 1000)),
    )  # fmt: skip
    queue.enqueue_messages("acme", [
        b"fine", b"much too long", Message(b"heavy", weight=Weight(51, 1)), Message(b"half", weight=Weight(50, 1)),
        Message(b"too heavy", weight=Weight(101, 1)), b"last",
    ])  # fmt: skip
    dry_run = queue.inspect.dry_run(seed=b"x")
    assert dry_run.queue("acme").set_aside == 3
    if way == "plan":
        settle(queue)
    else:
        processor = _metering if way == "metering" else None
        queue.service_queues(processor or (lambda delivery: None))
    reasons = {aside.address.index: (aside.reason, aside.limit, aside.most_bytes) for aside in queue.set_aside.list()}
    assert reasons == {
        1: ("size", None, 10), 2: ("fraction", Weight(50, 500), None), 4: ("overweight", Weight(100, 1000), None)
    }  # fmt: skip
    assert queue.footprint("acme").count == 3
    why = [event.why for event in queue.inspect.events(name="SetAside")]
    assert why[0] == "it has 13 bytes, more than the 10 that this ring allows"
    # Raise the limits: each message is compared with the limit that set it aside.
    queue.admin.change_ring(max_message_size=None)
    requeued = queue.set_aside.requeue_all()
    assert [aside.address.index for aside in requeued.moved] == [1]
    queue.admin.change_ring(most_of_limit=None)
    requeued = queue.set_aside.requeue_all()
    assert ([aside.address.index for aside in requeued.moved], [aside.address.index for aside in requeued.stayed]) == (
        [2],
        [4],
    )


def _metering(delivery: Any) -> Any:
    """Consume the weight of a message on its meter."""
    weight = Weight(101, 1) if delivery.payload == b"too heavy" else Weight(1, 1)
    return None if delivery.meter.consume(weight) else Overweight(weight)


_metering.meters_itself = True  # type: ignore[attr-defined]


def test_explain_names_the_exceeded_threshold(make_queue: Maker) -> None:
    queue = make_queue(max_message_size=3, service_weight=Weight(100, 1000), most_of_limit=0.1)
    queue.enqueue_message("acme", b"long")
    explanation = queue.inspect.explain("acme")
    assert (explanation.reason, explanation.block) == ("overweight", 1)
    assert (
        "has 4 bytes, more than the 3 that this ring allows" in explanation.sentence
        and "max_message_size" in explanation.remedies[0]
    )
    settle(queue)
    assert "has 4 bytes, more than the 3" in queue.inspect.explain_message(Address("acme", 0, 0)).sentence
    queue.enqueue_message("b", b"x", weight=Weight(11, 1))
    assert "more than the 10 ms · 100 B that this ring allows for one message" in queue.inspect.explain("b").sentence


def test_thresholds_are_off_by_default_and_validated() -> None:
    ring = RingConfig()
    off = (ring.max_message_size, ring.most_of_limit, ring.set_aside_expires, ring.discard_unreadable)
    assert off == (None, None, None, False)
    for name, values in {
        "max_message_size": (0, -1, 1.5, "x", True), "most_of_limit": (0, 1.5, -0.1, "x", True),
        "set_aside_expires": (0, -1, 1e10, "x", True), "discard_unreadable": (1, "yes", None),
    }.items():  # fmt: skip
        for value in values:
            with pytest.raises(ConfigRefused, match=name):
                ring.changed(**{name: value})
    wanted = ring.changed(max_message_size=1024, most_of_limit=0.005, set_aside_expires=86400, discard_unreadable=True)
    assert RingConfig.from_json(wanted.to_json()) == wanted
    assert wanted.changed(max_message_size=None, most_of_limit=None).most_of_limit is None


@pytest.mark.sqlite_first
@pytest.mark.soak
@pytest.mark.slow
def test_listing_filters_are_fast_with_100_000_messages(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(600_000, 1 << 40))
    queue.enqueue_messages(((f"o{number % 2000:05}", b"%d" % number) for number in range(100_000)), weight=HEAVY)
    block = settle(queue)
    while queue.footprint("o01999").ready_pages:  # a block decides about 10,000 messages at most
        settle(queue)

    def whole() -> None:
        assert len(queue.set_aside.list(limit=200_000)) == 100_000

    def short() -> None:
        for wanted in (
            {}, {"origin": "o01999"}, {"block": block}, {"arrived": block}, {"reason": "attempts"}, {"older_than": 3600},
            {"after": Address("o01990", 0, 0)}, {"reason": "swept"},
        ):  # fmt: skip
            queue.set_aside.list(**wanted)  # type: ignore[arg-type]

    assert shortest(short) < shortest(whole), "eight short lists take longer than a whole one"


def shortest(work: Callable[[], None]) -> float:
    """Return the least seconds of three runs: another process may use the processors in one of them."""
    found = []
    for _ in range(3):
        began = time.monotonic()
        work()
        found.append(time.monotonic() - began)
    return min(found)


def test_requeued_high_message_stays_high(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"urgent", weight=HEAVY, priority="high")
    queue.enqueue_messages("acme", [b"1", b"2"])
    serve(queue, lambda delivery: Yield() if delivery.payload != b"urgent" else None)
    (aside,) = queue.set_aside.list("acme")
    raised(queue)
    (moved,) = queue.set_aside.requeue(aside.address).moved
    assert moved.moved is not None
    assert [step.what for step in queue.inspect.history(moved.moved).steps] == ["enqueued", "set aside", "requeued"]
    assert queue.check() == []
    assert serve(queue, limit=WIDE)[0] == ("acme", b"urgent")


def test_check_reports_a_missing_set_aside_row(queue: MessageQueue, heavy: Address) -> None:
    with queue.store.writing() as unit:
        unit.run("delete_aside", {"origin": ["acme"], "page": [0], "item": [1]}, ring=queue.session.ring_id)
    (violation,) = queue.check()
    assert "its limit is not recorded" in str(violation)
    queue.set_aside.discard(heavy, "found by the check")
    assert queue.check() == []


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Note each call of a method."""
    calls, method = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **more: calls.append(name) or method(*args, **more))
    return calls


def test_decisions_about_many_messages_read_claims_once_for_each_transaction(
    make_queue: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(order="rotation")
    queue.enqueue_messages("acme", [b"x"] * 30, weight=HEAVY)
    serve(queue)
    calls = counted(monkeypatch, Blocks, "claims_on")
    addresses = [one.address for one in queue.set_aside.list(limit=30)]
    assert queue.set_aside.discard(addresses[:5], "a test") == 5
    assert len(queue.set_aside.requeue(addresses[5:10]).stayed) == 5
    assert queue.set_aside.discard_all("a test", origin="acme") == 25
    assert len(calls) <= 6


def test_a_message_that_a_block_executes_stays_and_the_others_go(make_queue: Maker) -> None:
    queue = make_queue(order="rotation")
    queue.enqueue_messages("acme", [b"x"] * 3, weight=HEAVY)
    serve(queue)
    held = queue.set_aside.list()[1].address
    block = queue.blocks.plan_overweight(held, Weight(1 << 40, 1 << 40))
    for decide in (queue.set_aside.requeue, lambda one: queue.set_aside.discard(one, "a test")):
        with pytest.raises(InFlight, match="is being executed"):
            decide(held)
    assert queue.set_aside.discard_all("a test", origin="acme") == 2
    queue.blocks.settle(block)
    assert [one.address for one in queue.set_aside.list()] == [held]


def test_culling_holds_the_ring_for_no_page_that_is_kept(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue(order="rotation", heap_size=10, max_stale=5)
    queue.enqueue_messages("acme", [b"abcd"] * 5, weight=HEAVY)
    serve(queue)
    calls = counted(monkeypatch, Hold, "transaction")
    assert queue.set_aside.cull() == 0
    assert calls == []
