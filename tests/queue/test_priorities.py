"""High messages before regular ones, within what is not kept; on both stores, in all orders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mq import Done, Message, MessageQueue, RingConfig, Weight, Yield
from airflow_mq.core.config import ORDERS
from airflow_mq.core.errors import ConfigRefused, InFlight, InvalidInput, InvalidOrigin
from airflow_mq.core.message import Address, Footprint
from airflow_mq.core.weigher import LinearWeigher
from airflow_mq.store import parse, upgrade

from .conftest import MakeQueue

#: A block carries a hundred messages of one byte.
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
    """Plan a block, do it and settle it; tell what it processed, in order: origin, and a ! for high."""
    block = queue.blocks.plan(seed=seed)
    done = []
    for batch in block.batches():
        done += [batch.origin + "!" * (batch.priority == "high")] * len(batch)
        queue.blocks.report(block, [batch.answer()])
    queue.blocks.settle(block)
    assert queue.check() == []
    return done


def counts(done: list[str]) -> dict[str, int]:
    return {name: done.count(name) for name in dict.fromkeys(done)}


@pytest.mark.parametrize("order", ORDERS)
def test_high_messages_come_first_however_late_they_were_sent(queue: MessageQueue, order: str) -> None:
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
def test_a_flood_of_high_leaves_regular_its_share(queue: MessageQueue, order: str, kept: float) -> None:
    queue = ring(queue, order=order, kept_for_regular=kept)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"x"] * 500, priority="high")
        queue.enqueue_messages(origin, [b"x"] * 500)
    for _ in range(4):
        found = counts(run(queue))
        regular = sum(found.get(origin, 0) for origin in ("a", "b"))
        assert regular == round(100 * kept), found
        assert sum(found.values()) == 100
        if order == "deficit" and kept > 0:
            assert abs(found["a!"] - found["b!"]) <= 1 and abs(found["a"] - found["b"]) <= 1, found


@pytest.mark.parametrize("order", ORDERS)
def test_what_regular_does_not_need_high_uses(queue: MessageQueue, order: str) -> None:
    queue = ring(queue, order=order)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"x"] * 300, priority="high")
    queue.enqueue_messages("c", [b"x"] * 10)
    found = counts(run(queue))
    assert found.pop("c") == 10 and sum(found.values()) == 90
    assert sum(counts(run(queue)).values()) == 100, "nothing is kept for nobody"


@pytest.mark.parametrize("order", ORDERS)
def test_a_flood_of_regular_delays_a_high_message_by_the_block_in_flight_at_most(
    queue: MessageQueue, order: str
) -> None:
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
def test_heavy_messages_of_both_priorities_get_their_turn_and_their_share(queue: MessageQueue, order: str) -> None:
    """A message is serviced whole; what one priority took too much of a block is made good in the next ones."""
    queue = ring(queue, order=order, rounds_per_block=4)
    queue.enqueue_messages("heavy", [b"x" * 60] * 60, priority="high")
    queue.enqueue_messages("small", [b"x"] * 4000)
    found: list[str] = []
    for _ in range(36):
        found += run(queue)
    regular = found.count("small")
    assert 36 * 50 - 100 <= regular <= 36 * 50 + 100, regular
    assert found.count("heavy!") >= 28
    other = ring(queue, order=order, rounds_per_block=4)
    other.enqueue_messages("heavy", [b"x" * 90] * 40)
    other.enqueue_messages("small", [b"x"] * 4000, priority="high")
    found = []
    for _ in range(36):
        found += run(other)
    assert 36 * 50 - 100 <= 90 * found.count("heavy") <= 36 * 50 + 100, found.count("heavy")
    assert found.count("small!") >= 36 * 50 - 100


@pytest.mark.parametrize("order", ORDERS)
def test_in_place_it_is_the_same(queue: MessageQueue, order: str) -> None:
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
        of_it = [payload for its, payload in seen if its == priority]
        assert of_it == sorted(of_it)
    assert len(seen) == 30


def test_a_head_of_its_own(queue: MessageQueue) -> None:
    """Both circles have a head, which can be forced; whoever is owed comes first of its own priority."""
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


def test_an_ordered_origin_is_never_in_two_blocks(queue: MessageQueue) -> None:
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


def test_what_goes_back_in_one_book_does_not_stop_the_other(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"1", b"2"], priority="high")
    queue.enqueue_messages("a", [b"3", b"4"])
    block = queue.blocks.plan()
    for batch in block.batches():
        outcome = Yield() if batch.priority == "high" else Done()
        queue.blocks.report(block, [batch.answer(outcome)])
    result = queue.blocks.settle(block)
    assert (result.processed, result.went_back) == (2, 2)
    assert [(one.payload, one.address.priority) for one in queue.inspect.peek("a")] == [(b"1", "high"), (b"2", "high")]


def test_pausing_and_sweeping_act_on_the_origin(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_message("a", b"x", priority="high")
    queue.enqueue_message("a", b"x")
    queue.admin.set_origin("a", share=3, most=Weight(1, 1))
    queue.admin.pause("a")
    assert run(queue) == [] and queue.inspect.pulse().ready == () and queue.inspect.explain("a").reason == "paused"
    queue.admin.resume("a")
    assert run(queue) == ["a!"], "of both together, it gets no more than its most"
    queue.enqueue_message("a", b"x", priority="high")
    block = queue.blocks.plan()
    with pytest.raises(InFlight):
        queue.sweep_queue("a")
    queue.blocks.release(block)
    assert queue.sweep_queue("a") == 2
    assert {str(one.address) for one in queue.set_aside.list("a")} == {"a:0:0", "a:1:0:high"}
    assert [one.address for one in queue.set_aside.list()] == [one.address for one in queue.set_aside.list("a")]
    assert [str(event.address) for event in queue.inspect.events(origin="a", name="Swept")] == ["a:1:0:high", "a:0:0"]
    assert queue.check() == []


def test_what_is_set_aside_is_found_by_its_address(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"h" * 200, b"x"], priority="high")
    queue.enqueue_messages("a", [b"r" * 200])
    assert counts(run(queue)) == {"a!": 1}
    high, regular = (Address.parse(str(one.address)) for one in queue.set_aside.list("a"))
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


def test_everything_that_shows_an_origin_shows_it_as_it_was_sent(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages([("b", b"x"), ("a", b"x"), ("c/d", b"x")], priority="high")
    queue.enqueue_message("a", b"x")
    sizes = [(origin, footprint.count) for origin, footprint in queue.footprints()]
    assert sizes == [("a", 2), ("b", 1), ("c/d", 1)]
    assert [name for name, _ in queue.footprints(limit=1)] == ["a"]
    assert [name for name, _ in queue.footprints(after="a")] == ["b", "c/d"]
    assert [name for name, _ in queue.footprints(prefix="c")] == ["c/d"]
    assert queue.inspect.pulse(10).ready == ("b", "a", "c/d")
    foreseen = queue.inspect.dry_run()
    assert foreseen.origins == ["b", "a", "c/d"] and foreseen.queue("b", "high").messages == 1
    assert [(one.origin, one.priority) for one in foreseen.queues][-1] == ("a", "regular")
    block = queue.blocks.plan()
    assert block.origins == ["b", "a", "c/d"] and {batch.origin for batch in block.batches(["a"])} == {"a"}
    assert [(e.origin, e.priority) for e in queue.inspect.ledger()[0].entries] == [
        ("b", "high"), ("a", "high"), ("c/d", "high"), ("a", "regular"),
    ]  # fmt: skip
    queue.blocks.report(block, [batch.answer() for batch in block.batches(["a"])])
    assert queue.footprint("a").count == 0, "what was reported is gone for every reader"
    queue.blocks.settle(block)
    told = [(event.name, event.origin, event.priority) for event in queue.inspect.events()]
    assert "\x01" not in repr(
        (sizes, foreseen.queues, told, queue.inspect.ledger(), queue.inspect.peek("b"), queue.inspect.explain("b"))
    )


def test_a_processor_may_send_with_priority(queue: MessageQueue) -> None:
    queue = ring(queue)

    def process(delivery: Any) -> Any:
        if delivery.payload == b"first":
            queue.enqueue_message("a", b"by call", priority="high")
            return Done(enqueue=[("a", b"by outcome", "high"), ("a", b"regular")])
        return None

    queue.enqueue_message("a", b"first")
    queue.service_queues(process)
    assert queue.check() == [] and queue.config.high
    seen = [(one.payload, one.address.priority) for one in queue.inspect.peek("a")]
    assert seen == [(b"by call", "high"), (b"by outcome", "high")], "the regular one was met in the same call"
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer(Done(enqueue=[("b", b"x", "high")])) for batch in block.batches()])
    queue.blocks.settle(block)
    assert queue.footprint("b", "high").count == 2


def test_due_keys_and_expiry_go_with_priority(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_message("a", b"late", priority="high", not_before=3600.0)
    queue.enqueue_message("a", b"old", priority="high", expires=-1.0)
    assert queue.enqueue_message("a", b"once", key="k", priority="high").repeated == 0
    assert queue.enqueue_message("a", b"once", key="k").repeated == 1, "a key names one message, of whatever priority"
    assert counts(run(queue)) == {"a!": 1}
    assert [(event.name, event.priority) for event in queue.inspect.events(name="Expired")] == [("Expired", "high")]
    assert queue.inspect.explain("a").reason == "not due"


def test_listeners_hear_of_the_origin(uri: str) -> None:
    told: list[tuple[str, Footprint]] = []
    with MessageQueue(uri, listeners=[lambda *call: told.append(call)]) as queue:
        queue.enqueue_messages("a", [b"x"] * 2)
        queue.enqueue_message("a", b"x", priority="high")
        queue.service_queues(lambda delivery: None)
        assert queue.check() == []
    assert [origin for origin, _ in told] == ["a"] * 4
    assert [footprint.count for _, footprint in told] == [2, 3, 2, 0], "both books together"


def test_what_is_foreseen_is_what_happens(queue: MessageQueue) -> None:
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


def test_the_first_high_message_says_that_there_are_some(queue: MessageQueue, uri: str) -> None:
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
def test_a_share_is_a_fraction(queue: MessageQueue, value: Any) -> None:
    with pytest.raises(ConfigRefused, match="kept_for_regular"):
        queue.admin.change_ring(kept_for_regular=value)


def test_bad_input(queue: MessageQueue) -> None:
    for call in (
        lambda: queue.enqueue_message("a", b"x", priority="urgent"),
        lambda: queue.enqueue_messages("a", [b"x"], priority="urgent"),
        lambda: queue.enqueue_messages("a", [Message(b"x", priority="urgent")]),
        lambda: queue.footprint("a", "urgent"),
        lambda: queue.inspect.ring_order(priority="urgent"),
        lambda: queue.admin.force_set_head("a", priority="urgent"),
        lambda: queue.inspect.explain_message(Address("a", 0, 0, "urgent")),
        lambda: queue.inspect.shuffled_order(b""),
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


def test_a_shuffled_order_is_told_by_its_seed(queue: MessageQueue) -> None:
    queue = ring(queue, order="shuffle")
    for number in range(20):
        queue.enqueue_message(f"o{number}", b"x")
        queue.enqueue_message(f"o{number}", b"x", priority="high")
    seed = bytes(range(16))
    high, regular = queue.inspect.shuffled_order(seed, priority="high"), queue.inspect.shuffled_order(seed)
    assert high == regular != queue.inspect.ring_order() and queue.inspect.shuffled_order(b"another") != regular
    block = queue.blocks.plan()
    drawn = queue.blocks.get(block.token)
    assert drawn.seed is not None
    queue.blocks.release(block)
    expected = queue.inspect.shuffled_order(drawn.seed)
    entries = queue.inspect.ledger(block=block.id)[0].entries
    assert [entry.origin for entry in entries] == expected + expected
    assert run(queue, seed) == [f"{origin}!" for origin in high] + regular


@pytest.mark.one_postgres
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [3, 14])
def test_the_share_is_kept_whatever_the_messages_weigh(make_queue: MakeQueue, order: str, seed: int) -> None:
    """Floods of both, of any weights: regular gets its share of every row of blocks, but for about one message."""
    chance = random.Random(seed)
    kept = chance.choice([0.2, 0.5, 0.8])
    queue = make_queue(order=order, kept_for_regular=kept, rounds_per_block=4, **HUNDRED)
    for priority in ("high", "regular"):
        most = {"high": chance.choice([10, 60, 95]), "regular": chance.choice([10, 60, 95])}[priority]
        for origin in ("a", "b", "c"):
            messages = [b"x" * chance.randint(1, most) for _ in range(6_000 // most)]
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


def test_in_a_ring_with_paths_groups_share_among_regular_messages(queue: MessageQueue) -> None:
    queue = ring(queue, paths=True)
    for origin in ("acme/1", "acme/2", "birch/1"):
        queue.enqueue_messages(origin, [b"x"] * 300)
    queue.enqueue_messages("acme/1", [b"x"] * 30, priority="high")
    found = counts(run(queue))
    assert found.pop("acme/1!") == 30
    assert abs(found["birch/1"] - 35) <= 1 and abs(found["acme/1"] - found["acme/2"]) <= 1
    queue.enqueue_messages("acme/2", [b"x"] * 300, priority="high")
    queue.admin.pause("acme", below=True)
    assert set(run(queue)) == {"birch/1"} and queue.inspect.pulse(9).ready == ("birch/1",)
    queue.admin.resume("acme")
    assert counts(run(queue))["acme/2!"] == 50
    block = queue.blocks.plan()
    queue.blocks.report(block, [b.answer(Done(used=Weight(60, 60))) for b in block.batches()])
    queue.blocks.settle(block)
    assert queue.check() == []


def test_the_check_knows_what_priorities_promise(queue: MessageQueue) -> None:
    queue = ring(queue)
    queue.enqueue_messages("a", [b"x" * 60] * 2, priority="high")
    queue.enqueue_messages("b", [b"x"] * 80)
    run(queue)
    assert queue.check() == []
    prefix = queue.store.prefix
    for change, said in (
        # Each undoes itself.
        ("UPDATE {}book SET ticket = -5 - ticket WHERE ticket IS NOT NULL", "among those of the other priority"),
        ("UPDATE {}book SET deficit = -7 - deficit WHERE origin = '\x01'", "parts of a block to regular ones"),
    ):
        for broken in (True, False):
            with queue.store.writing() as unit:
                unit.connection.execute(change.format(prefix))  # type: ignore[attr-defined]
            found = [str(one) for one in queue.check()]
            assert any(said in one for one in found) if broken else not found, found


@pytest.mark.parametrize("order", ORDERS)
def test_a_ring_that_only_looks_for_high_messages_services_as_before(queue: MessageQueue, order: str) -> None:
    found = []
    for high in (False, True):
        one, chance = ring(queue, order=order, high=high, rounds_per_block=4), random.Random(5)
        for _ in range(40):
            one.enqueue_messages(chance.choice("abcd"), [b"x" * chance.randint(1, 60) for _ in range(5)])
        blocks = []
        while block := one.blocks.plan(seed=b"seed"):
            if not block.messages:
                break
            blocks.append(
                ([(claim.origin, claim.runs, claim.planned) for claim in block.claims], one.inspect.ring_order())
            )
            one.blocks.report(block, [batch.answer() for batch in block.batches()])
            one.blocks.settle(block)
        found.append(blocks)
    assert found[0] == found[1] and len(found[0]) > 50
