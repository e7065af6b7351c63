"""Quotes: what they predict happens, under ten kinds of load."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import pytest

from airflow_mq import LinearWeigher, Message, MessageQueue, Weight
from airflow_mq.engine.queue.inspect import inspect
from airflow_mq.engine.queue.inspect import quote as quotes
from airflow_mq.engine.queue.inspect.forecast import Conditions, foresight
from airflow_mq.engine.queue.inspect.quote import Offer, Quote, Traffic, quote_of
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.priority import book_name
from airflow_mq.engine.store.working_set import overlay
from tests.proofs.model.clock import SECOND, Clock
from tests.store.queue.conftest import Maker, in_airflow
from tests.store.queue.test_foreseeing import untouched

EVERY = 600
LIMIT = Weight(60_000, 1 << 20)


class Sent(NamedTuple):
    """Messages that arrive together, some seconds after the last block."""

    after: float
    origin: str
    count: int
    weight: Weight
    priority: str = "regular"


#: Yields what arrives before each block, for ever.
Kind = Callable[[random.Random], Iterator[list[Sent]]]


def steady(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield [Sent(dice.random() * EVERY, f"t{number}", 4, Weight(1_000, 100)) for number in range(8)]


def heavy_tenant(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield [Sent(10, "big", 40, Weight(1_000, 100)), Sent(300, f"t{dice.randrange(5)}", 3, Weight(500, 10))]


def full(dice: random.Random) -> Iterator[list[Sent]]:
    """As much as the blocks carry."""
    while True:
        yield [Sent(dice.random() * EVERY, f"t{number}", 6, Weight(1_000, 100)) for number in range(10)]


def bursts(dice: random.Random) -> Iterator[list[Sent]]:
    """Every fifth block gets as much as it carries."""
    number = 0
    while True:
        number += 1
        yield [Sent(1, "burst", 55, Weight(1_000, 10))] if number % 5 == 0 else []


def random_sizes(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield [
            Sent(
                dice.random() * EVERY, f"t{dice.randrange(6)}", dice.randrange(1, 5), Weight(dice.randrange(4_000), 50)
            )
            for _ in range(6)
        ]


def many_tenants(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield [Sent(dice.random() * EVERY, f"t{dice.randrange(200)}", 1, Weight(800, 100)) for _ in range(40)]


def high(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield [
            Sent(5, "urgent", 15, Weight(1_000, 10), "high"),
            *(Sent(9, f"t{number}", 5, Weight(1_000, 10)) for number in range(4)),
        ]


def large_in_bytes(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield [Sent(dice.random() * EVERY, f"t{number}", 2, Weight(10, 60_000)) for number in range(5)]


def fading(dice: random.Random, slowly: int = 12) -> Iterator[list[Sent]]:
    """Less and less: the past shows more than comes."""
    number = 0
    while True:
        number += 1
        yield [Sent(20, f"t{place}", max(9 - number // slowly, 1), Weight(1_000, 10)) for place in range(4)]


def fading_fast(dice: random.Random) -> Iterator[list[Sent]]:
    return fading(dice, slowly=5)


def nothing(dice: random.Random) -> Iterator[list[Sent]]:
    while True:
        yield []


KINDS: dict[str, tuple[Kind, dict[str, Any]]] = {
    "steady": (steady, {}),
    "a heavy tenant": (heavy_tenant, {}),
    "as much as fits": (full, {}),
    "bursts": (bursts, {}),
    "random weights": (random_sizes, {}),
    "many tenants": (many_tenants, {"ordered": False}),
    "high messages": (high, {}),
    "large in bytes": (large_in_bytes, {"paths": True}),
    "fading": (fading, {}),
    "nothing else": (nothing, {"order": "rotation"}),
}


class Ring:
    """A ring with a load, a block every ten minutes."""

    def __init__(self, queue: MessageQueue, clock: Clock, kind: Kind) -> None:
        self.queue, self.clock = queue, clock
        #: Of each queue, when each of its messages was taken.
        self.done: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self.load = kind(random.Random(7))
        self.ahead: list[list[Sent]] = []

    def arrivals(self, blocks: int) -> list[list[Sent]]:
        """Return what arrives before the next blocks."""
        while len(self.ahead) < blocks:
            self.ahead.append(sorted(next(self.load)))
        return self.ahead[:blocks]

    def block(self) -> None:
        """Let ten minutes pass, and run a block."""
        passed = 0.0
        self.arrivals(1)
        for sent in self.ahead.pop(0):
            self.clock.advance(sent.after - passed)
            passed = sent.after
            self.queue.enqueue_messages(sent.origin, [b"x"] * sent.count, weight=sent.weight, priority=sent.priority)
        self.clock.advance(EVERY - passed)
        block = self.queue.blocks.plan()
        for claim in block.claims:
            self.done[claim.whose, claim.priority] += [self.clock.now] * claim.messages
        self.queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        self.queue.blocks.settle(block)

    def run(self, blocks: int) -> None:
        for _ in range(blocks):
            self.block()

    def backfill(self, count: int, weight: Weight) -> int:
        """Send messages; return the number of blocks until all are processed."""
        self.queue.enqueue_messages("backfill", [b"x"] * count, weight=weight)
        blocks = 0
        while self.queue.footprint("backfill").count:
            self.block()
            blocks += 1
        return blocks

    def traffic(self, blocks: int) -> Traffic:
        """Return what will really arrive."""
        traffic = Traffic(self.queue.config, blocks * EVERY * SECOND)
        for number, sents in enumerate(self.arrivals(blocks)):
            for sent in sents:
                after = int((number * EVERY + sent.after) * SECOND)
                traffic.add(after, book_name(sent.origin, sent.priority), [sent.weight] * sent.count)
        return traffic


def quote_with(queue: MessageQueue, traffic: Traffic, count: int, weight: Weight) -> Quote:
    """Quote with arrivals that are known."""
    with foresight(queue.inspect._session, Conditions()) as future:
        offer = Offer(future.config, "backfill", weight)
        offer.add_alike(count)
        return quote_of(future, offer, future.pace(), 600.0, traffic)


@pytest.mark.sqlite_first
@pytest.mark.parametrize("name", KINDS)
def test_a_quote_comes_true(make_queue: Maker, clock: Clock, name: str, record_property: Any) -> None:
    kind, settings = KINDS[name]
    ring = Ring(make_queue(service_weight=LIMIT, **settings), clock, kind)
    ring.run(25)
    count, weight = 400, Weight(1_000, 100)
    with untouched(ring.queue):
        quote = ring.queue.inspect.quote("backfill", count=count, weight=weight, seconds=600)
        known = quote_with(ring.queue, ring.traffic(100), count, weight)
    assert quote.every == pytest.approx(EVERY)
    assert quote.charge == Weight(count * 1_000, count * 100)
    took = ring.backfill(count, weight)
    assert quote.blocks is not None and known.blocks is not None and quote.finishes_at is not None
    record_property("quoted, with true arrivals, really", (quote.blocks, known.blocks, took))
    assert abs(quote.blocks - took) <= max(1, took / 10)
    assert abs(quote.finishes_at.timestamp() - clock.now / SECOND) <= max(1, took / 10) * EVERY
    assert known.blocks == took
    assert (quote.left, quote.set_aside, quote.stopped, quote.is_partial) == (0, 0, "", False)


@pytest.mark.sqlite_first
def test_a_load_that_changes_fast_is_quoted_too_late(make_queue: Maker, clock: Clock) -> None:
    """Only the past is known: the quote is too careful here, and exact with the true arrivals."""
    ring = Ring(make_queue(service_weight=LIMIT), clock, fading_fast)
    ring.run(25)
    quote = ring.queue.inspect.quote("backfill", count=400, weight=Weight(1_000, 100))
    known = quote_with(ring.queue, ring.traffic(100), 400, Weight(1_000, 100))
    took = ring.backfill(400, Weight(1_000, 100))
    assert known.blocks == took
    assert quote.blocks is not None and took <= quote.blocks <= 2 * took


@pytest.mark.sqlite_first
@pytest.mark.parametrize("name", ["steady", "a heavy tenant", "high messages", "bursts", "random weights"])
def test_added_waits_come_true(make_queue: Maker, clock: Clock, name: str) -> None:
    kind, settings = KINDS[name]
    free, burdened = (
        Ring(make_queue(ring, service_weight=LIMIT, **settings), clock, kind) for ring in ("free", "burdened")
    )
    began = clock.now
    free.run(25)
    clock.now = began
    burdened.run(25)
    began = clock.now
    known = quote_with(burdened.queue, burdened.traffic(100), 200, Weight(1_000, 100))
    assert known.blocks is not None
    blocks = 2 * known.blocks + 2
    free.run(blocks)
    clock.now = began
    burdened.queue.enqueue_messages("backfill", [b"x"] * 200, weight=Weight(1_000, 100))
    burdened.run(blocks)
    really = {}
    for (origin, priority), times in burdened.done.items():
        if origin != "backfill":
            waits = [late - early for late, early in zip(times, free.done[origin, priority])]
            really[origin] = max(0, really.get(origin, 0), *waits) / SECOND
    quoted = {wait.origin: wait.seconds for wait in known.added}
    assert quoted == pytest.approx({origin: wait for origin, wait in really.items() if origin in quoted}, abs=1)
    assert known.longest == pytest.approx(max(really.values()), abs=1)
    # The fair order protects light tenants: only these kinds have tenants that wait longer.
    assert (known.longest > 0) == (name in ("a heavy tenant", "random weights"))
    assert [wait.seconds for wait in known.added] == sorted(quoted.values(), reverse=True)


def test_messages_of_their_own_lengths_and_weights(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(10, 1 << 20))
    messages = [b"four", Message(b"12", weight=Weight(5, 1)), Message(b"1", weight=Weight(0, 0))]
    quote = queue.inspect.quote("acme", messages, every="10m")
    # A declaration below the prediction lowers no charge.
    assert (quote.messages, quote.charge) == (3, Weight(1 + 5 + 1, 4 + 2 + 1))
    assert (quote.blocks, quote.every, quote.added) == (1, 600.0, [])


def test_headers_and_external_payloads_are_charged(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(10_000, 1 << 30))
    blob = queue.payloads.put(b"x" * 300_000).reference
    messages = [blob, Message(b"x", headers={"a": "b" * 5_000})]
    charge = queue.inspect.quote("acme", messages, every="10m").charge
    queue.enqueue_messages("acme", messages)
    assert charge == queue.blocks.plan().planned


def test_blocks_that_would_come_at_once(make_queue: Maker) -> None:
    for every, why in ((None, "not known how often"), (0, "cannot come every 0 s")):
        with pytest.raises(InvalidInput, match=why):
            make_queue().inspect.quote("acme", [b"x"], every=every)


def test_a_queue_that_is_paused_never_finishes(make_queue: Maker) -> None:
    queue = make_queue(service_weight=LIMIT)
    queue.admin.pause("acme")
    queue.enqueue_message("other", b"x")
    quote = queue.inspect.quote("acme", [b"x"] * 3, every=60)
    assert (quote.blocks, quote.finishes_at, quote.left, quote.stopped) == (None, None, 3, "Paused")


@pytest.mark.parametrize("below", [False, True])
def test_a_pause_that_ends_by_itself_delays_messages(make_queue: Maker, clock: Clock, below: bool) -> None:
    queue = make_queue(service_weight=LIMIT, paths=True)
    queue.enqueue_message("acme/orders", b"x")
    queue.admin.pause("acme" if below else "acme/orders", until=1_800, below=below)
    for origin in ("acme/orders", "acme/mails" if below else "acme/orders"):
        found = queue.inspect.quote(origin, [b"x"] * 3, every=600)
        assert (found.blocks, found.left, found.stopped) == (4, 0, "")
    assert [block.messages for block in queue.inspect.forecast(9, every=600)] == [0, 0, 0, 1]
    # A pause without an end counts more than one with an end.
    queue.admin.pause("acme/orders" if below else "acme", below=not below)
    assert queue.inspect.quote("acme/orders", [b"x"], every=600).stopped == "Paused"
    assert queue.inspect.forecast(9, every=600) == []


def test_the_first_high_message_of_a_ring(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(10, 1 << 20))
    queue.enqueue_messages("bolt", [b"x"] * 30)
    found = queue.inspect.quote("acme", [b"x"], priority="high", every=600)
    assert (found.blocks, found.left, found.is_partial) == (1, 0, False)
    assert not queue.config.high


def test_messages_that_no_block_carries(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(100, 1 << 20))
    quote = queue.inspect.quote("acme", count=2, weight=Weight(30, 10), limit=Weight(20, 1 << 20), every=60)
    assert quote.left == 2
    assert quote.stopped == "a message of 30 ms · 10 B does not fit a block of 20 ms · 1 MiB"
    quote = queue.inspect.quote("acme", count=2, weight=Weight(300, 10), every=60)
    assert (quote.set_aside, quote.left, quote.blocks) == (2, 0, 1)


def test_a_quote_that_takes_too_long_is_partial(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(10, 1 << 20))
    quote = queue.inspect.quote("acme", count=1_000, weight=Weight(1, 1), every=60, seconds=0)
    assert quote.is_partial
    assert (quote.blocks, quote.left) == (None, 990)


def test_messages_in_flight_are_settled_before_the_second_block(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(10, 1 << 20))
    queue.enqueue_messages("acme", [b"x"] * 10, weight=Weight(1, 1))
    queue.blocks.plan()
    quote = queue.inspect.quote("acme", count=10, weight=Weight(1, 1), every=60)
    assert quote.blocks == 2


def test_a_quote_counts_arrivals_for_as_long_as_events_are_kept(make_queue: Maker, clock: Clock) -> None:
    """By default, they are kept for a week: with a block a day, the latest 20 blocks are older."""
    ring = Ring(make_queue(service_weight=LIMIT, keep_events=5 * EVERY), clock, steady)
    ring.run(25)
    ring.queue.admin.housekeep()
    quote = ring.queue.inspect.quote("backfill", count=400, weight=Weight(1_000, 100), seconds=600)
    took = ring.backfill(400, Weight(1_000, 100))
    assert quote.blocks is not None and abs(quote.blocks - took) <= max(1, took / 10)


def test_all_messages_that_wait_before_it_are_counted(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(100, 1 << 20))
    # Each has an inbox row of its own.
    queue.enqueue_messages("acme", [Message(b"x", f"{number}", Weight(1, 1)) for number in range(1_100)])
    quote = queue.inspect.quote("acme", count=100, weight=Weight(1, 1), every=60)
    assert (quote.blocks, quote.left) == (12, 0)


def test_a_quote_is_of_the_dag_that_takes_the_origin(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(service_weight=LIMIT)
    for _ in range(3):
        for name in ("acme", "bolt"):
            server, limit = in_airflow(f"DAG '{name}', task 'plan'"), Weight(10_000, 1 << 20)
            queue.blocks.settle(queue.blocks.plan(server=server, origins=[f"{name}*"], limit=limit))
            clock.advance(300)
    quote = queue.inspect.quote("acme", count=20, weight=Weight(1_000, 1), seconds=1)
    assert (quote.blocks, quote.every, quote.is_partial) == (2, 600.0, False)
    one = {"count": 1, "weight": Weight(1, 1), "every": 60}
    with pytest.raises(InvalidInput, match="takes 'cedar': pass the limit of such blocks"):
        queue.inspect.quote("cedar", **one)
    assert queue.inspect.quote("cedar", limit=LIMIT, **one).blocks == 1


def test_a_quote_charges_by_the_present_weigher(make_queue: Maker) -> None:
    queue, other = make_queue(service_weight=LIMIT), make_queue()
    other.admin.change_ring(weigher=LinearWeigher(Weight(7, 0), Weight(0, 0)))
    assert queue.inspect.quote("acme", [b"x"] * 2, every=60).charge == Weight(14, 0)


def test_a_forecast_has_all_messages_that_become_due_together(
    make_queue: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MOST_DUE", {"most": 2})
    queue = make_queue(service_weight=LIMIT)
    for payload in b"12345":
        queue.enqueue_message("acme", bytes([payload]), not_before=30)
    assert [block.messages for block in queue.inspect.forecast(9, every=60)] == [0, 2, 2, 1]


def test_no_transaction_waits_for_the_messages_of_a_quote(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue(service_weight=LIMIT)
    monkeypatch.setattr(inspect, "foresight", lambda *_: pytest.fail("the forecast began"))

    def messages() -> Iterator[bytes]:
        yield b"x"
        raise KeyError("the source failed")

    with pytest.raises(KeyError, match="the source failed"):
        queue.inspect.quote("acme", messages(), every=60)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"count": 1}, "the weight of each"),
        ({"count": 1, "messages": [b"x"], "weight": Weight(1, 1)}, "or their number"),
        ({"messages": [b"x"]}, "how often blocks come"),
        ({"messages": [Message(b"x", priority="high")], "every": 60}, "for one queue"),
        ({"messages": [b""], "every": 60}, "0 bytes"),
        ({"count": 1_000_001, "weight": Weight(1, 1), "every": 60}, "at most 1,000,000 messages"),
        ({"count": 10**18, "weight": Weight(1, 1), "every": 60}, "at most 1,000,000 messages"),
        ({"messages": [b"x"], "every": "soon"}, "time between two blocks"),
    ],
)
def test_what_a_quote_refuses(make_queue: Maker, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        make_queue(service_weight=LIMIT).inspect.quote("acme", **given)


def test_a_source_without_an_end_is_refused(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotes, "MOST_MESSAGES", 1_000)
    with pytest.raises(InvalidInput, match="at most 1,000 messages"):
        make_queue(service_weight=LIMIT).inspect.quote("acme", repeat(b"x"), every=60)
