"""Operator decisions and reads: set-aside messages, pauses, sweeps, the head, rings and events."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_mq import (
    Address,
    Footprint,
    LinearWeigher,
    MessageQueue,
    Overweight,
    RingConfig,
    StackLimitReached,
    Weight,
    Yield,
)
from airflow_mq.engine.rules.errors import (
    AlreadyProcessed,
    ConfigRefused,
    InsufficientWeight,
    InvalidInput,
    NoMessage,
    NoPage,
    NotReapable,
    Queued,
    QueuePaused,
    Refused,
    RingExists,
    SchemaMissing,
    TemporarilyUnprocessable,
    UnknownRing,
)
from airflow_mq.engine.store.working_set import books
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events, serve

HEAVY = Weight(700_000, 5)


@pytest.fixture
def heavy(queue: MessageQueue) -> Address:
    """Return the address of a message that was set aside between two processed ones."""
    queue.enqueue_message("acme", b"first")
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    queue.enqueue_message("acme", b"last")
    assert len(serve(queue)) == 2
    return queue.set_aside.list()[0].address


def test_an_address_that_is_given_twice_counts_once(queue: MessageQueue, heavy: Address) -> None:
    assert len(queue.set_aside.requeue([heavy, heavy]).stayed) == 1
    queue.admin.change_ring(service_weight=Weight(10 * HEAVY.time, 1 << 20))
    assert len(queue.set_aside.requeue([heavy, heavy]).moved) == 1
    assert queue.service_queues(lambda delivery: Overweight(Weight(10**9, 1))).set_aside == 1
    (again,) = queue.set_aside.list()
    assert queue.set_aside.discard([again.address, again.address], "sent by mistake") == 1


def test_set_aside_list_describes_a_message(queue: MessageQueue, heavy: Address) -> None:
    (aside,) = queue.set_aside.list()
    assert (aside.address, aside.size, aside.weight, aside.limit) == (
        Address("acme", 0, 1),
        5,
        HEAVY,
        Weight(600_000, 1 << 30),
    )
    assert aside.at is not None and abs(datetime.now(timezone.utc) - aside.at) < timedelta(minutes=5)
    assert aside.age is not None and 0 <= aside.age < 300
    assert aside.block is None
    assert queue.footprint("acme") == Footprint(1, 0, 1, 5)
    assert [(peeked.payload, peeked.state) for peeked in queue.inspect.peek("acme", page=0)] == [
        (b"heavy", "set aside")
    ]


def test_set_aside_message_names_its_block(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    block = queue.blocks.plan()
    assert queue.set_aside.list() == []
    queue.blocks.settle(block)
    assert [aside.block for aside in queue.set_aside.list()] == [block.id]


def test_set_aside_messages_are_listed_in_pages(make_queue: Maker) -> None:
    queue = make_queue(heap_size=30)
    queue.enqueue_messages([(f"o{number % 4}", b"%02d" % number) for number in range(40)], weight=HEAVY)
    queue.service_queues(lambda delivery: None)
    everything = queue.set_aside.list(limit=1000)
    assert len(everything) == 40
    assert everything == sorted(everything, key=lambda aside: aside.address)
    pages: list[Any] = []
    while more := queue.set_aside.list(limit=7, after=pages[-1].address if pages else None):
        pages += more
    assert [aside.address for aside in pages] == [aside.address for aside in everything]
    assert [aside.address.origin for aside in queue.set_aside.list("o2")] == ["o2"] * 10


def test_execute_overweight_processes_a_set_aside_message(queue: MessageQueue, heavy: Address) -> None:
    seen: list[bytes] = []
    assert queue.execute_overweight(heavy, lambda delivery: seen.append(delivery.payload)) == HEAVY
    assert (seen, queue.set_aside.list(), queue.footprints()) == ([b"heavy"], [], [])
    last = list(queue.inspect.events())[-2:]
    assert [(event.name, event.weight, event.detail) for event in last] == [
        ("Processed", HEAVY, ""), ("Executed", HEAVY, "tester")
    ]  # fmt: skip
    with pytest.raises(NoPage):
        queue.execute_overweight(heavy, lambda delivery: None)


def test_messages_of_an_execution_commit_with_it(queue: MessageQueue, heavy: Address) -> None:
    queue.execute_overweight(heavy, lambda delivery: queue.enqueue_message("globex", b"more") and None)
    assert serve(queue) == [("globex", b"more")]


@pytest.mark.parametrize(
    ("processor", "limit", "error"),
    [
        (lambda delivery: None, Weight(699_999, 5), InsufficientWeight),
        (lambda delivery: Overweight(Weight(1, 1)), HEAVY, InsufficientWeight),
        (lambda delivery: Yield(), HEAVY, TemporarilyUnprocessable),
        (lambda delivery: 1 / 0, HEAVY, TemporarilyUnprocessable),
        (lambda delivery: StackLimitReached(), HEAVY, TemporarilyUnprocessable),
    ],
)
def test_failed_execution_changes_nothing(
    queue: MessageQueue, heavy: Address, processor: Any, limit: Weight, error: type[Exception]
) -> None:
    before, events = queue.set_aside.list()[0].address, logged_events(queue)
    with pytest.raises(error):
        queue.execute_overweight(heavy, processor, limit)
    assert ([aside.address for aside in queue.set_aside.list()], logged_events(queue)) == ([before], events)
    queue.execute_overweight(heavy, lambda delivery: None)


def test_backoff_above_backoff_most_is_rejected(queue: MessageQueue) -> None:
    with pytest.raises(ConfigRefused, match="backoff=7200 is above backoff_most=3600: .* raise backoff_most"):
        queue.admin.change_ring(backoff=7_200)
    with pytest.raises(ConfigRefused, match="backoff=60 is above backoff_most=30"):
        queue.admin.create_ring("slow", RingConfig(backoff=60, backoff_most=30))
    assert queue.admin.change_ring(backoff=7_200, backoff_most=7_200).backoff == 7_200
    with pytest.raises(ConfigRefused, match="is above"):
        queue.admin.change_ring(backoff_most=1)


def test_only_the_outer_call_records_a_reached_stack_limit(queue: MessageQueue, heavy: Address) -> None:
    before = logged_events(queue)
    with pytest.raises(Refused):
        queue.execute_overweight(heavy, lambda delivery: StackLimitReached(), for_everything=True)
    assert [event.name for event in list(queue.inspect.events())[len(before) :]] == ["ProcessingFailed"]
    assert [aside.address for aside in queue.set_aside.list()] == [heavy]


def test_execution_rejects_messages_that_are_not_set_aside(queue: MessageQueue, heavy: Address) -> None:
    queue.enqueue_message("acme", b"next")
    for address, error in (
        (Address("acme", 0, 0), AlreadyProcessed),
        (Address("acme", 0, 9), NoMessage),
        (Address("acme", 7, 0), NoPage),
        (Address("nobody", 0, 0), NoPage),
        (Address("acme", 1, 0), Queued),
    ):
        with pytest.raises(error):
            queue.execute_overweight(address, lambda delivery: None)
        with pytest.raises(error):
            queue.set_aside.discard(address, "why")
    queue.admin.pause("acme")
    with pytest.raises(QueuePaused):
        queue.execute_overweight(heavy, lambda delivery: None)


def test_discard_requires_and_records_a_reason(queue: MessageQueue, heavy: Address) -> None:
    with pytest.raises(InvalidInput):
        queue.set_aside.discard(heavy, "")
    assert queue.set_aside.discard(heavy, "the customer is gone") == 1
    assert (queue.set_aside.list(), queue.footprints()) == ([], [])
    last = list(queue.inspect.events())[-1]
    assert (last.name, last.origin, last.index, last.detail) == (
        "Discarded",
        "acme",
        1,
        "the customer is gone (tester)",
    )


def test_discarding_many_is_all_or_nothing(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b", b"c"], weight=HEAVY)
    serve(queue)
    addresses = [aside.address for aside in queue.set_aside.list()]
    with pytest.raises(NoMessage):
        queue.set_aside.discard([*addresses[:2], Address("acme", 0, 9)], "old")
    assert len(queue.set_aside.list()) == 3
    assert queue.set_aside.discard(addresses[:2], "old") == 2
    assert [aside.address for aside in queue.set_aside.list()] == addresses[2:]


def test_reap_page_discards_its_messages(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", heap_size=10, max_stale=0)
    queue.enqueue_messages("acme", [b"abcd", b"efgh"], weight=HEAVY)
    with pytest.raises(NotReapable):
        queue.reap_page("acme", 0)
    serve(queue)
    assert queue.footprint("acme") == Footprint(2, 0, 2, 8)
    queue.reap_page("acme", 0, "too old")
    with pytest.raises(NoPage):
        queue.reap_page("acme", 0)
    assert [(event.name, event.page, event.detail) for event in queue.inspect.events()][-2:] == [
        ("Discarded", 0, "too old (tester)"), ("PageRemoved", 0, "too old (tester)")
    ]  # fmt: skip
    assert queue.footprint("acme") == Footprint(1, 0, 1, 4)


def test_recent_page_cannot_be_reaped(queue: MessageQueue, heavy: Address) -> None:
    with pytest.raises(NotReapable, match="too recent"):
        queue.reap_page("acme", 0)


# Pausing.


def test_paused_queue_is_not_serviced_until_resumed(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a")
    queue.admin.pause("acme", "migration")
    queue.enqueue_message("acme", b"b")
    assert serve(queue) == []
    (paused,) = queue.admin.paused()
    assert (paused.origin, paused.reason, paused.actor, paused.until) == ("acme", "migration", "tester", None)
    assert queue.inspect.ring_order() == ["acme"]
    assert (queue.admin.resume("acme"), queue.admin.resume("acme")) == (True, False)
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


def test_pause_with_until_ends_by_itself(queue: MessageQueue, clock: Clock) -> None:
    queue.enqueue_message("acme", b"a")
    queue.admin.pause("acme", until=1.0)
    assert serve(queue) == []
    clock.advance(1.0)
    assert serve(queue) == [("acme", b"a")]
    assert queue.admin.paused() == []


def test_second_pause_replaces_the_first(queue: MessageQueue) -> None:
    queue.admin.pause("acme", "one", until=timedelta(days=1))
    queue.admin.pause("acme", "two")
    # A mistyped year would end the pause.
    with pytest.raises(InvalidInput, match="is past: expected a later time; nothing was paused"):
        queue.admin.pause("acme", "three", until=datetime(2000, 1, 1, tzinfo=timezone.utc))
    assert [(pause.reason, pause.until) for pause in queue.admin.paused()] == [("two", None)]


# Sweeping and the head.


def test_swept_messages_are_set_aside(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"])
    assert queue.sweep_queue("acme") == 2
    assert (queue.sweep_queue("acme"), serve(queue), queue.inspect.ring_order()) == (0, [], [])
    assert queue.footprint("acme") == Footprint(1, 0, 2, 2)
    assert [(aside.address.index, aside.reason) for aside in queue.set_aside.list()] == [(0, "swept"), (1, "swept")]
    queue.enqueue_message("acme", b"c")
    assert serve(queue) == [("acme", b"c")]
    queue.execute_overweight(Address("acme", 0, 1), lambda delivery: None)
    assert [aside.address.index for aside in queue.set_aside.list()] == [0]
    queue.execute_overweight(Address("acme", 0, 0), lambda delivery: None)
    assert queue.footprints() == []


def test_force_set_head_rotates_the_ring(queue: MessageQueue) -> None:
    for name in "abcd":
        queue.enqueue_message(name, name.encode())
    assert queue.inspect.ring_order() == list("abcd")
    assert queue.admin.force_set_head("c") is True
    assert queue.inspect.ring_order() == list("cdab")
    assert queue.admin.force_set_head("d") is True
    assert queue.inspect.ring_order() == list("dabc")
    assert queue.admin.force_set_head("nobody") is False
    assert [origin for origin, _ in serve(queue)] == list("dabc")


@pytest.mark.parametrize("number", [2, 9])
def test_force_set_head_of_each_queue_rotates_the_ring(queue: MessageQueue, number: int) -> None:
    names = [f"o{index}" for index in range(number)]
    for name in names:
        queue.enqueue_message(name, b"x")
    for index, name in enumerate(names):
        assert queue.admin.force_set_head(name)
        assert queue.inspect.ring_order() == names[index:] + names[:index]


def test_force_set_head_keeps_newcomers_at_the_end(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "RING_SLICE", 2)
    for name in "abcdef":
        queue.enqueue_message(name, b"x")
    queue.blocks.release(queue.blocks.plan(limit=Weight(1, 1 << 30)))
    for name in "gh":
        queue.enqueue_message(name, b"x")
    assert queue.inspect.ring_order() == list("bcdefagh")
    queue.admin.force_set_head("f")
    assert queue.inspect.ring_order() == list("faghbcde")


# Settings of an origin.


def test_shares_divide_a_block(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(1_000, 1_000), rounds_per_block=100)
    queue.admin.set_origin("acme", share=3)
    for name in ("acme", "globex"):
        queue.enqueue_messages(name, [b"x"] * 2_000, weight=Weight(1, 0))
    queue.service_queues(lambda delivery: None)
    done = {name: 2_000 - queue.footprint(name).count for name in ("acme", "globex")}
    assert sum(done.values()) == 1_000
    assert 700 <= done["acme"] <= 800


def test_most_limits_an_origin_per_block(make_queue: Maker) -> None:
    queue = make_queue(order="deficit")
    queue.admin.set_origin("acme", most=Weight(5, 100))
    queue.enqueue_messages("acme", [b"x"] * 20)
    queue.enqueue_message("acme", b"heavy", weight=Weight(6, 1))
    assert len(serve(queue)) == 5
    for _ in range(4):
        serve(queue)
    assert [(aside.weight, aside.limit and aside.limit.time) for aside in queue.set_aside.list()] == [(Weight(6, 1), 5)]


def test_least_guarantees_an_origin_per_block(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(10, 1_000))
    for name in ("a", "b", "c", "quiet"):
        queue.enqueue_messages(name, [b"x"] * 50)
    queue.admin.set_origin("quiet", least=Weight(6, 500))
    for _ in range(3):
        served = [origin for origin, _ in serve(queue)]
        assert served.count("quiet") >= 6
        assert len(served) == 10


def test_least_applies_far_into_the_ring(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(10, 1_000))
    queue.enqueue_messages([(f"o{number:03}", b"x") for number in range(300) for _ in range(2)])
    serve(queue)
    queue.enqueue_messages("quiet", [b"x"] * 7)
    queue.admin.set_origin("quiet", least=Weight(3, 500))
    assert [[origin for origin, _ in serve(queue)].count("quiet") for _ in range(4)] == [3, 3, 1, 0]
    block = queue.blocks.plan()
    assert "quiet" not in block.origins
    queue.enqueue_message("quiet", b"x")
    other = queue.blocks.plan()
    assert other.origins[0] == "quiet"
    queue.blocks.release(other)
    queue.blocks.release(block)


@pytest.mark.parametrize(
    "settings",
    [{"share": 0}, {"share": 1.5}, {"share": True}, {"least": (1,)}, {"most": "x"}, {"ordered": "no"}, {"ordered": 0}],
)
def test_invalid_origin_settings_are_rejected(queue: MessageQueue, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        queue.admin.set_origin("acme", **settings)


# Rings.


def test_rings_of_one_store_are_separate(make_queue: Maker) -> None:
    first, other = make_queue("one"), make_queue("other")
    first.enqueue_message("acme", b"a")
    other.enqueue_message("acme", b"b")
    first.admin.pause("acme")
    assert (serve(first), serve(other)) == ([], [("acme", b"b")])
    assert (first.footprint("acme").count, other.footprint("acme").count) == (1, 0)
    assert (logged_events(first), len(logged_events(other))) == ([], 1)
    assert first.admin.rings() == ["default", "one", "other"]


def test_invalid_rings_are_rejected(make_queue: Maker) -> None:
    queue = make_queue()
    with pytest.raises(RingExists):
        queue.admin.create_ring("test")
    with pytest.raises(UnknownRing, match="'default', 'test'"):
        MessageQueue(make_queue.uri, "nowhere")
    with pytest.raises(ConfigRefused):
        queue.admin.create_ring("no good name!")
    assert queue.admin.rings() == ["default", "test"]


@pytest.mark.empty_store
def test_store_without_schema_is_rejected(store_uri: str) -> None:
    with pytest.raises(SchemaMissing, match="store upgrade"):
        MessageQueue(store_uri)


def test_heap_size_can_only_grow(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x" * 60_000)
    assert queue.admin.change_ring(heap_size=100_000, max_stale=7).heap_size == 100_000
    with pytest.raises(ConfigRefused, match="heap_size cannot shrink"):
        queue.admin.change_ring(heap_size=99_999)
    queue.enqueue_message("acme", b"y" * 90_000)
    assert len(serve(queue)) == 2


def test_ring_changes_reach_open_queues(make_queue: Maker) -> None:
    queue, other = make_queue(order="rotation"), make_queue()
    assert queue.admin.change_ring(weigher=LinearWeigher((5, 0), (0, 0))).weigher.weigh(9) == Weight(5, 0)
    other.enqueue_message("acme", b"a")
    assert other.service_queues(lambda delivery: None).weight == Weight(5, 0)
    assert other.config == queue.config
    with MessageQueue(make_queue.uri, "test") as third:
        assert third.config == queue.config


@pytest.mark.parametrize(
    "changes",
    [
        {"order": "random"}, {"lease": 0}, {"colour": "red"}, {"max_attempts": 0}, {"service_weight": (-1, 0)},
        {"heap_size": 2.5}, {"extra": 1},
    ],
)  # fmt: skip
def test_rejected_changes_change_nothing(queue: MessageQueue, changes: dict[str, Any]) -> None:
    before = queue.config
    with pytest.raises(InvalidInput):
        queue.admin.change_ring(**changes)
    assert queue.config == before
    assert queue.enqueue_message("acme", b"x").count == 1


def test_ring_with_too_small_service_weight_is_rejected(queue: MessageQueue) -> None:
    from airflow_mq import Costs

    costs = Costs(bump_service_head=Weight(3, 0), service_page_item=Weight(2, 7))
    with pytest.raises(ConfigRefused, match="at least 5 ms · 7 B"):
        queue.admin.create_ring("poor", RingConfig(service_weight=Weight(4, 4), costs=costs))
    queue.admin.create_ring("just", RingConfig(service_weight=Weight(5, 7), costs=costs))


# Reading.


def test_footprints_are_listed_in_pages(queue: MessageQueue) -> None:
    names = [f"{team}/{number}" for team in ("acme", "globex") for number in range(5)]
    queue.enqueue_messages([(name, b"x") for name in names])
    assert [name for name, _ in queue.footprints()] == names
    assert [name for name, _ in queue.footprints("globex/")] == names[5:]
    assert [name for name, _ in queue.footprints(limit=3)] == names[:3]
    assert [name for name, _ in queue.footprints(after=names[2], limit=3)] == names[3:6]


def test_peek_changes_nothing(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"%d" % number for number in range(50)])
    for _ in range(2):
        assert [message.payload for message in queue.inspect.peek("acme", limit=3)] == [b"0", b"1", b"2"]
    first = queue.inspect.peek("acme")[0]
    assert (first.address, first.state, first.attempts) == (Address("acme", 0, 0), "waiting", 0)
    assert first.sent_at is not None and abs(datetime.now(timezone.utc) - first.sent_at) < timedelta(minutes=5)
    assert queue.inspect.peek("nobody") == []
    assert len(serve(queue)) == 50


def test_peek_and_waiting_reach_behind_messages_of_other_states(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 100, weight=HEAVY)
    serve(queue)
    sent = [b"%d" % number for number in range(50)]
    for payload in sent:
        queue.enqueue_message("acme", payload)

    def waiting(limit: int) -> list[bytes]:
        return [payload for batch in queue.inspect.waiting("acme", limit=limit) for payload in batch.payloads]

    assert [message.payload for message in queue.inspect.peek("acme", limit=20)] == waiting(20) == sent[:20]
    block = queue.blocks.plan(limit=Weight(30, 1 << 20))
    assert block.messages == 30 and waiting(5) == sent[30:35]


def test_peek_reads_a_page_that_is_not_cut_yet(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", heap_size=100)
    sent = [b"%02d" % number for number in range(40)]
    for payload in sent:
        queue.enqueue_message("acme", payload)
    pages = [[message.payload for message in queue.inspect.peek("acme", page=page)] for page in range(4)]
    assert pages == [sent[:14], sent[14:28], sent[28:], []]
    assert [message.payload for message in queue.inspect.peek("acme", page=2, limit=1)] == sent[28:29]


def test_events_are_filtered(queue: MessageQueue) -> None:
    queue.enqueue_messages([("acme", b"a"), ("globex", b"b"), ("acme", b"c")])
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    serve(queue)
    block = queue.blocks.plan()
    queue.blocks.settle(block)
    assert {event.origin for event in queue.inspect.events(origin="globex")} == {"globex"}
    assert [event.name for event in queue.inspect.events(name="SetAside")] == ["SetAside"]
    (globex_event,) = queue.inspect.events(origin="globex")
    assert [(event.origin, event.index) for event in queue.inspect.events(id=globex_event.id)] == [("globex", 0)]
    assert list(queue.inspect.events(block=block.id)) == []
    assert len(list(queue.inspect.events(limit=2))) == 2
    everything = list(queue.inspect.events())
    assert len(everything) == 4
    assert [event.seq for event in everything] == sorted({event.seq for event in everything})
    for index, event in enumerate(everything):
        assert list(queue.inspect.events(after=event.seq)) == everything[index + 1 :]


def test_events_are_followed(make_queue: Maker) -> None:
    queue, reader = make_queue(order="rotation"), make_queue()
    origins: list[bytes] = []

    def follow() -> None:
        for event in reader.inspect.events(follow=True, limit=3):
            origins.append(event.origin.encode())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for name in ("a", "b", "c"):
        queue.enqueue_message(name, b"x")
        serve(queue)
    thread.join(120)
    assert origins == [b"a", b"b", b"c"]


def test_ledger_lists_origins_of_a_block(queue: MessageQueue) -> None:
    queue.enqueue_messages([("acme", b"a"), ("globex", b"b"), ("acme", b"c")])
    queue.admin.pause("globex")
    block = queue.blocks.plan()
    (page,) = queue.inspect.ledger(block=block.id)
    lines = {line.origin: (line.granted, line.messages, line.reason) for line in page.entries}
    assert lines == {"acme": (Weight(2, 2), 2, "emptied"), "globex": (Weight(0, 0), 0, "paused")}
    queue.blocks.release(block)
    queue.admin.resume("globex")
    serve(queue)
    assert [len(page.entries) for page in queue.inspect.ledger()] == [2, 2]


def test_housekeeping_deletes_expired_rows(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", keep_events=0, keep_ledger=0, key_window=0)
    queue.enqueue_message("acme", b"a", key="k")
    queue.blocks.settle(queue.blocks.plan())
    serve(queue)
    queue.admin.housekeep()
    assert (list(queue.inspect.events()), queue.inspect.ledger(), queue.blocks.list()) == ([], [], [])
