"""Priorities: high messages precede regular ones, except for the reserve, in each order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mq import Done, Message, MessageQueue, RingConfig, Weight, Yield
from airflow_mq.engine.rules.config import ORDERS
from airflow_mq.engine.rules.errors import ConfigRefused, InFlight, InvalidInput, InvalidOrigin
from airflow_mq.engine.rules.message import Address, Footprint
from airflow_mq.engine.rules.weight import LinearWeigher
from airflow_mq.engine.store import parse, upgrade

from .conftest import MakeQueue

#: Settings of a ring whose blocks carry a hundred messages of one byte.
HUNDRED = {"service_weight": Weight(100, 100), "weigher": LinearWeigher(Weight(0, 0), Weight(1000, 1000))}


@pytest.fixture
def uri(store_uri: str) -> str:
    upgrade(parse(store_uri))
    return store_uri


@pytest.fixture
def queue(uri: str) -> Iterator[MessageQueue]:
    with MessageQueue(uri) as queue:
        yield queue


def ring(queue: MessageQueue, **settings: Any) -> MessageQueue:
    name = f"ring-{len(queue.admin.rings())}"
    queue.admin.create_ring(name, RingConfig(**{**HUNDRED, **settings}))
    return MessageQueue(queue.store, name, listeners=queue.session.listeners)


def run(queue: MessageQueue, seed: bytes | None = None) -> list[str]:
    """Plan, process and settle a block; return its origins in order, with a ! for high."""
    block = queue.blocks.plan(seed=seed)
    processed = []
    for batch in block.batches():
        processed += [batch.origin + "!" * (batch.priority == "high")] * len(batch)
        queue.blocks.report(block, [batch.answer()])
    queue.blocks.settle(block)
    assert queue.check() == []
    return processed


def counts(origins: list[str]) -> dict[str, int]:
    return {name: origins.count(name) for name in dict.fromkeys(origins)}


@pytest.mark.parametrize("order", ORDERS)
def test_late_high_messages_come_first(queue: MessageQueue, order: str) -> None:
    queue = ring(queue, order=order)
    queue.enqueue_messages("a", [b"x"] * 40)
    queue.enqueue_messages("b", [b"x"] * 20)
    queue.enqueue_message("b", b"x", priority="high")
    queue.enqueue_messages("c", [b"x", Message(b"x", priority="high")])
    done = run(queue)
    assert set(done[:2]) == {"b!", "c!"}
    assert counts(done) == {"a": 40, "b": 20, "c": 1, "b!": 1, "c!": 1}
    assert queue.inspect.pulse().ready == () and queue.footprint("b") == Footprint(0, 0, 0, 0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kept", [0.0, 0.25, 0.9])
def test_high_messages_leave_the_reserve_to_regular_ones(queue: MessageQueue, order: str, kept: float) -> None:
    queue = ring(queue, order=order, kept_for_regular=kept)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"x"] * 500, priority="high")
        queue.enqueue_messages(origin, [b"x"] * 500)
    for _ in range(4):
        block_counts = counts(run(queue))
        regular = sum(block_counts.get(origin, 0) for origin in ("a", "b"))
        assert regular == round(100 * kept), block_counts
        assert sum(block_counts.values()) == 100
        if order == "deficit" and kept > 0:
            assert (
                abs(block_counts["a!"] - block_counts["b!"]) <= 1 and abs(block_counts["a"] - block_counts["b"]) <= 1
            ), block_counts


@pytest.mark.parametrize("order", ORDERS)
def test_unused_reserve_goes_to_high_messages(queue: MessageQueue, order: str) -> None:
    queue = ring(queue, order=order)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"x"] * 300, priority="high")
    queue.enqueue_messages("c", [b"x"] * 10)
    block_counts = counts(run(queue))
    assert block_counts.pop("c") == 10 and sum(block_counts.values()) == 90
    assert sum(counts(run(queue)).values()) == 100, "no reserve without regular messages"


@pytest.mark.parametrize("order", ORDERS)
def test_high_message_waits_for_at_most_the_block_in_flight(queue: MessageQueue, order: str) -> None:
    queue = ring(queue, order=order)
    for number in range(200):
        queue.enqueue_messages(f"flood/{number:03}", [b"x"] * 20)
    for _ in range(3):
        block = queue.blocks.plan()
        queue.enqueue_message("flood/007", b"x", priority="high")
        for batch in block.batches():
            queue.blocks.report(block, [batch.answer()])
        queue.blocks.settle(block)
        assert run(queue)[0] == "flood/007!"


@pytest.mark.parametrize("order", ORDERS)
def test_heavy_messages_of_both_priorities_get_their_share(queue: MessageQueue, order: str) -> None:
    """Messages are indivisible; later blocks compensate if one priority took too much."""
    queue = ring(queue, order=order, rounds_per_block=4)
    queue.enqueue_messages("heavy", [b"x" * 60] * 60, priority="high")
    queue.enqueue_messages("small", [b"x"] * 4000)
    processed: list[str] = []
    for _ in range(36):
        processed += run(queue)
    regular = processed.count("small")
    assert 36 * 50 - 100 <= regular <= 36 * 50 + 100, regular
    assert processed.count("heavy!") >= 28
    other = ring(queue, order=order, rounds_per_block=4)
    other.enqueue_messages("heavy", [b"x" * 90] * 40)
    other.enqueue_messages("small", [b"x"] * 4000, priority="high")
    processed = []
    for _ in range(36):
        processed += run(other)
    assert 36 * 50 - 100 <= 90 * processed.count("heavy") <= 36 * 50 + 100, processed.count("heavy")
    assert processed.count("small!") >= 36 * 50 - 100


@pytest.mark.parametrize("order", ORDERS)
def test_service_divides_priorities_like_a_block(queue: MessageQueue, order: str) -> None:
    queue = ring(queue, order=order)
    queue.enqueue_messages("a", [b"x"] * 300)
    queue.enqueue_messages("a", [b"x"] * 300, priority="high")
    seen: list[str] = []
    queue.service_queues(lambda delivery: seen.append(delivery.priority))
    assert seen == ["high"] * 50 + ["regular"] * 50
    assert queue.check() == []
    assert queue.footprint("a").count == 500
    assert queue.footprint("a", "high").count == queue.footprint("a", "regular").count == 250


def test_messages_of_an_origin_and_priority_keep_their_order(queue: MessageQueue) -> None:
    queue = ring(queue)
    for number in range(30):
        queue.enqueue_message("a", b"%02d" % number, priority="high" if number % 3 == 0 else "regular")
    seen: list[tuple[str, bytes]] = []
    while queue.inspect.pulse():
        queue.service_queues(lambda delivery: seen.append((delivery.priority, delivery.payload)))
    for priority in ("high", "regular"):
        payloads = [payload for delivered_priority, payload in seen if delivered_priority == priority]
        assert payloads == sorted(payloads)
    assert len(seen) == 30


def test_each_priority_has_its_own_head(queue: MessageQueue) -> None:
    """The head of each circle can be forced; an origin with a debt comes first in its priority."""
    queue = ring(queue, order="rotation")
    for origin in ("a", "b", "c"):
        queue.enqueue_messages(origin, [b"x"] * 50)
        queue.enqueue_messages(origin, [b"x"] * 50, priority="high")
    assert queue.admin.force_set_head("c", priority="high") and queue.admin.force_set_head("b")
    assert queue.inspect.ring_order(priority="high") == ["c", "a", "b"] and queue.inspect.ring_order() == [
        "b",
        "c",
        "a",
    ]
    assert queue.admin.force_set_head("b", priority="high")
    assert queue.inspect.ring_order(priority="high") == ["b", "c", "a"] and queue.check() == []
    assert counts(run(queue)) == {"b!": 50, "b": 50}
    assert queue.inspect.ring_order(priority="high") == ["c", "a"]


def test_ordered_origin_is_in_one_block_at_a_time(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"x"] * 5)
    first = queue.blocks.plan()
    queue.enqueue_message("a", b"y", priority="high")
    queue.enqueue_message("b", b"z", priority="high")
    second = queue.blocks.plan()
    assert second.origins == ["b"]
    assert queue.inspect.explain("a").reason == "in flight"
    queue.blocks.release(first)
    assert queue.blocks.plan().origins == ["a"]
    queue.admin.set_origin("c", ordered=False)
    queue.enqueue_message("c", b"x")
    queue.blocks.plan()
    queue.enqueue_message("c", b"y", priority="high")
    assert queue.blocks.plan().origins == ["c"]
    assert queue.check() == []


def test_yield_in_one_priority_does_not_stop_the_other(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"1", b"2"], priority="high")
    queue.enqueue_messages("a", [b"3", b"4"])
    block = queue.blocks.plan()
    for batch in block.batches():
        outcome = Yield() if batch.priority == "high" else Done()
        queue.blocks.report(block, [batch.answer(outcome)])
    result = queue.blocks.settle(block)
    assert (result.processed, result.returned) == (2, 2)
    assert [(message.payload, message.address.priority) for message in queue.inspect.peek("a")] == [
        (b"1", "high"),
        (b"2", "high"),
    ]


def test_pause_and_sweep_cover_both_priorities(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_message("a", b"x", priority="high")
    queue.enqueue_message("a", b"x")
    queue.admin.set_origin("a", share=3, most=Weight(1, 1))
    queue.admin.pause("a")
    assert run(queue) == [] and queue.inspect.pulse().ready == () and queue.inspect.explain("a").reason == "paused"
    queue.admin.resume("a")
    assert run(queue) == ["a!"], "most limits both priorities together"
    queue.enqueue_message("a", b"x", priority="high")
    block = queue.blocks.plan()
    with pytest.raises(InFlight):
        queue.sweep_queue("a")
    queue.blocks.release(block)
    assert queue.sweep_queue("a") == 2
    assert {str(aside.address) for aside in queue.set_aside.list("a")} == {"a:0:0", "a:1:0:high"}
    assert [aside.address for aside in queue.set_aside.list()] == [aside.address for aside in queue.set_aside.list("a")]
    assert [str(event.address) for event in queue.inspect.events(origin="a", name="Swept")] == ["a:1:0:high", "a:0:0"]
    assert queue.check() == []


def test_set_aside_address_includes_the_priority(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"h" * 200, b"x"], priority="high")
    queue.enqueue_messages("a", [b"r" * 200])
    assert counts(run(queue)) == {"a!": 1}
    high, regular = (Address.parse(str(aside.address)) for aside in queue.set_aside.list("a"))
    assert (high.priority, regular.priority) == ("high", "regular") and high == Address("a", 0, 0, "high")
    assert queue.set_aside.list(after=high)[0].address == regular
    assert queue.inspect.explain_message(high).reason == queue.inspect.explain_message(regular).reason == "set aside"
    seen: list[bytes] = []
    queue.execute_overweight(high, lambda delivery: seen.append(delivery.payload[:1]))
    block = queue.blocks.plan_overweight(regular, Weight(1000, 1000))
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    assert seen == [b"h"] and queue.set_aside.list() == [] and queue.check() == []
    assert {str(event.address): event.name for event in queue.inspect.events(name="Executed")} == {
        "a:0:0:high": "Executed", "a:0:0": "Executed",
    }  # fmt: skip
    assert queue.inspect.explain_message(high).sentence == "a:0:0:high is gone: Executed."
    queue.enqueue_messages("a", [b"h" * 200], priority="high")
    run(queue)
    assert queue.set_aside.discard(queue.set_aside.list()[0].address, "too much") == 1


def test_reads_show_origins_without_the_priority_mark(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages([("b", b"x"), ("a", b"x"), ("c/d", b"x")], priority="high")
    queue.enqueue_message("a", b"x")
    sizes = [(origin, footprint.count) for origin, footprint in queue.footprints()]
    assert sizes == [("a", 2), ("b", 1), ("c/d", 1)]
    assert [name for name, _ in queue.footprints(limit=1)] == ["a"]
    assert [name for name, _ in queue.footprints(after="a")] == ["b", "c/d"]
    assert [name for name, _ in queue.footprints(prefix="c")] == ["c/d"]
    assert queue.inspect.pulse(10).ready == ("b", "a", "c/d")
    dry_run = queue.inspect.dry_run()
    assert dry_run.origins == ["b", "a", "c/d"] and dry_run.queue("b", "high").messages == 1
    assert [(entry.origin, entry.priority) for entry in dry_run.queues][-1] == ("a", "regular")
    block = queue.blocks.plan()
    assert block.origins == ["b", "a", "c/d"] and {batch.origin for batch in block.batches(["a"])} == {"a"}
    assert [(e.origin, e.priority) for e in queue.inspect.ledger()[0].entries] == [
        ("b", "high"), ("a", "high"), ("c/d", "high"), ("a", "regular"),
    ]  # fmt: skip
    queue.blocks.report(block, [batch.answer() for batch in block.batches(["a"])])
    assert queue.footprint("a").count == 0, "reported messages are hidden from readers"
    queue.blocks.settle(block)
    event_rows = [(event.name, event.origin, event.priority) for event in queue.inspect.events()]
    assert "\x01" not in repr(
        (sizes, dry_run.queues, event_rows, queue.inspect.ledger(), queue.inspect.peek("b"), queue.inspect.explain("b"))
    )


def test_processor_sends_with_priority(queue: MessageQueue) -> None:
    queue = ring(queue)

    def process(delivery: Any) -> Any:
        if delivery.payload == b"first":
            queue.enqueue_message("a", b"by call", priority="high")
            return Done(enqueue=[("a", b"by outcome", "high"), ("a", b"regular")])
        return None

    queue.enqueue_message("a", b"first")
    queue.service_queues(process)
    assert queue.check() == [] and queue.config.high
    seen = [(message.payload, message.address.priority) for message in queue.inspect.peek("a")]
    assert seen == [(b"by call", "high"), (b"by outcome", "high")], "the regular message was serviced in the same call"
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer(Done(enqueue=[("b", b"x", "high")])) for batch in block.batches()])
    queue.blocks.settle(block)
    assert queue.footprint("b", "high").count == 2


def test_high_messages_can_have_due_times_keys_and_expiry(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_message("a", b"late", priority="high", not_before=3600.0)
    queue.enqueue_message("a", b"old", priority="high", expires=-1.0)
    assert queue.enqueue_message("a", b"once", key="k", priority="high").repeated == 0
    assert queue.enqueue_message("a", b"once", key="k").repeated == 1, "keys are shared by both priorities"
    assert counts(run(queue)) == {"a!": 1}
    assert [(event.name, event.priority) for event in queue.inspect.events(name="Expired")] == [("Expired", "high")]
    assert queue.inspect.explain("a").reason == "not due"


def test_listeners_get_footprints_of_both_priorities(uri: str) -> None:
    calls: list[tuple[str, Footprint]] = []
    with MessageQueue(uri, listeners=[lambda *call: calls.append(call)]) as queue:
        queue.enqueue_messages("a", [b"x"] * 2)
        queue.enqueue_message("a", b"x", priority="high")
        queue.service_queues(lambda delivery: None)
        assert queue.check() == []
    assert [origin for origin, _ in calls] == ["a"] * 4
    assert [footprint.count for _, footprint in calls] == [2, 3, 2, 0], "the footprint covers both books"


def test_forecast_equals_blocks_with_priorities(queue: MessageQueue) -> None:
    for order in ORDERS:
        queue = ring(queue, order=order)
        for number in range(9):
            queue.enqueue_messages(
                f"o{number}", [b"x" * (number + 1)] * 20, priority="high" if number % 2 else "regular"
            )
        queue.enqueue_messages("o1", [b"x" * 70] * 3, priority="high")
        queue.enqueue_messages("o2", [b"x" * 80] * 3)
        foreseen = queue.inspect.forecast(12, seed=b"seed")
        for block in foreseen:
            planned = queue.blocks.plan(seed=b"seed")
            assert list(planned.claims) == list(block.claims)
            queue.blocks.report(planned, [batch.answer() for batch in planned.batches()])
            queue.blocks.settle(planned)
            assert queue.check() == []


def test_first_high_message_enables_high(queue: MessageQueue, uri: str) -> None:
    queue = ring(queue)
    with MessageQueue(uri, queue.ring) as other:
        assert not queue.config.high
        other.enqueue_message("a", b"x", priority="high")
        assert counts(run(queue)) == {"a!": 1} and queue.config.high
        with pytest.raises(ConfigRefused):
            queue.admin.change_ring(high=False)
        queue.admin.change_ring(kept_for_regular=0.25)
        assert other.config.changed(kept_for_regular=0.5).high


@pytest.mark.parametrize("value", [1, 1.5, -0.1, True, "half", None])
def test_kept_for_regular_must_be_a_fraction(queue: MessageQueue, value: Any) -> None:
    with pytest.raises(ConfigRefused, match="kept_for_regular"):
        queue.admin.change_ring(kept_for_regular=value)


def test_invalid_priorities_and_origins_are_rejected(queue: MessageQueue) -> None:
    for call in (
        lambda: queue.enqueue_message("a", b"x", priority="urgent"),
        lambda: queue.enqueue_messages("a", [b"x"], priority="urgent"),
        lambda: queue.enqueue_messages("a", [Message(b"x", priority="urgent")]),
        lambda: queue.footprint("a", "urgent"),
        lambda: queue.inspect.ring_order(priority="urgent"),
        lambda: queue.admin.force_set_head("a", priority="urgent"),
        lambda: queue.inspect.explain_message(Address("a", 0, 0, "urgent")),
        lambda: queue.inspect.ring_order(seed=b""),
    ):
        with pytest.raises(InvalidInput):
            call()
    for origin in ("\x01a", "\x01"):
        for call in (
            lambda: queue.enqueue_message(origin, b"x"),  # noqa: B023
            lambda: queue.enqueue_message(origin, b"x", priority="high"),  # noqa: B023
            lambda: queue.enqueue_messages([("a", Message(b"x", priority="high")), (origin, b"x")]),  # noqa: B023
            lambda: queue.footprint(origin),  # noqa: B023
            lambda: queue.admin.pause(origin),  # noqa: B023
            lambda: queue.admin.set_origin(origin, share=2),  # noqa: B023
        ):
            with pytest.raises(InvalidOrigin):
                call()
    assert queue.footprints() == [] and queue.check() == []


def test_seed_determines_the_shuffled_order(queue: MessageQueue) -> None:
    queue = ring(queue, order="shuffle")
    for number in range(20):
        queue.enqueue_message(f"o{number}", b"x")
        queue.enqueue_message(f"o{number}", b"x", priority="high")
    seed = bytes(range(16))
    high, regular = queue.inspect.ring_order(priority="high", seed=seed), queue.inspect.ring_order(seed=seed)
    assert high == regular != queue.inspect.ring_order() and queue.inspect.ring_order(seed=b"another") != regular
    block = queue.blocks.plan()
    stored_block = queue.blocks.get(block.token)
    assert stored_block.seed is not None
    queue.blocks.release(block)
    expected = queue.inspect.ring_order(seed=stored_block.seed)
    entries = queue.inspect.ledger(block=block.id)[0].entries
    assert [entry.origin for entry in entries] == expected + expected
    assert run(queue, seed) == [f"{origin}!" for origin in high] + regular


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [3, 14])
def test_reserve_is_kept_for_messages_of_any_weight(make_queue: MakeQueue, order: str, seed: int) -> None:
    """In each sequence of blocks, regular messages get their share, within about one message."""
    rng = random.Random(seed)
    kept = rng.choice([0.2, 0.5, 0.8])
    queue = make_queue(order=order, kept_for_regular=kept, rounds_per_block=4, **HUNDRED)
    for priority in ("high", "regular"):
        heaviest = {"high": rng.choice([10, 60, 95]), "regular": rng.choice([10, 60, 95])}[priority]
        for origin in ("a", "b", "c"):
            messages = [b"x" * rng.randint(1, heaviest) for _ in range(6_000 // heaviest)]
            queue.enqueue_messages(origin, messages, priority=priority)
    got = {"high": 0, "regular": 0}
    for number in range(1, 25):
        block = queue.blocks.plan(seed=b"seed")
        for claim in block.claims:
            got[claim.priority] += claim.planned.time
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
        assert got["regular"] >= 100 * (kept * number - 1), (number, got)
    assert got["high"] >= 100 * 24 * (1 - kept) * 0.5 and queue.check() == []


@pytest.mark.slow
def test_groups_share_regular_capacity(queue: MessageQueue) -> None:
    queue = ring(queue, paths=True)
    for origin in ("acme/1", "acme/2", "birch/1"):
        queue.enqueue_messages(origin, [b"x"] * 300)
    queue.enqueue_messages("acme/1", [b"x"] * 30, priority="high")
    block_counts = counts(run(queue))
    assert block_counts.pop("acme/1!") == 30
    assert abs(block_counts["birch/1"] - 35) <= 1 and abs(block_counts["acme/1"] - block_counts["acme/2"]) <= 1
    queue.enqueue_messages("acme/2", [b"x"] * 300, priority="high")
    queue.admin.pause("acme", below=True)
    assert set(run(queue)) == {"birch/1"} and queue.inspect.pulse(9).ready == ("birch/1",)
    queue.admin.resume("acme")
    assert counts(run(queue))["acme/2!"] == 50
    block = queue.blocks.plan()
    queue.blocks.report(block, [b.answer(Done(used=Weight(60, 60))) for b in block.batches()])
    queue.blocks.settle(block)
    assert queue.check() == []


def test_check_reports_violations_of_priorities(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"x" * 60] * 2, priority="high")
    queue.enqueue_messages("b", [b"x"] * 80)
    run(queue)
    assert queue.check() == []
    prefix = queue.store.prefix
    for change, violation in (
        # Each statement undoes itself.
        ("UPDATE {}ring_state SET debt = -7 - debt", "parts of a block: expected"),
    ):
        for broken in (True, False):
            with queue.store.writing() as unit:
                unit.connection.execute(change.format(prefix))  # type: ignore[attr-defined]
            violations = [str(violated) for violated in queue.check()]
            assert any(violation in text for text in violations) if broken else not violations, violations


@pytest.mark.parametrize("order", ORDERS)
def test_high_setting_alone_does_not_change_blocks(queue: MessageQueue, order: str) -> None:
    runs = []
    for high in (False, True):
        queue_of_run, rng = ring(queue, order=order, high=high, rounds_per_block=4), random.Random(5)
        for _ in range(40):
            queue_of_run.enqueue_messages(rng.choice("abcd"), [b"x" * rng.randint(1, 60) for _ in range(5)])
        blocks = []
        while block := queue_of_run.blocks.plan(seed=b"seed"):
            if not block.messages:
                break
            blocks.append(
                (
                    [(claim.origin, claim.runs, claim.planned) for claim in block.claims],
                    queue_of_run.inspect.ring_order(),
                )
            )
            queue_of_run.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue_of_run.blocks.settle(block)
        runs.append(blocks)
    assert runs[0] == runs[1] and len(runs[0]) > 50
