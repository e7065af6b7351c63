"""Both priorities at random, on all stores: no message is lost, overtaken within its book, or left over."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from airflow_mq import Block, Corrupt, Done, Message, MessageQueue, RingConfig, Weight, Yield
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.rules.weight import LinearWeigher
from tests.postgres_server import Server

from .clock import Clock
from .sides import block_facts
from .test_model import chosen, hasty, run

__all__ = ["hasty"]
ORIGINS = ("a", "a/b", "c")
PRIORITIES = ("high", "regular")
FINAL = {"Processed", "ProcessingFailed", "Discarded"}
_names = itertools.count(1)
books = st.tuples(st.sampled_from(ORIGINS), st.sampled_from(PRIORITIES))


class Priorities(RuleBasedStateMachine):
    """All operations with two priorities; all stores must answer alike."""

    uris: list[str]
    clock: Clock
    met: Counter[str]

    @initialize(
        order=st.sampled_from(["deficit", "rotation", "shuffle"]), ordered=st.booleans(), listen=st.booleans(),
        kept=st.sampled_from([0.0, 0.3, 0.5, 0.9]),
    )  # fmt: skip
    def begin(self, order: str, ordered: bool, listen: bool, kept: float) -> None:
        config = RingConfig(
            heap_size=64, order=order, ordered=ordered, kept_for_regular=kept, service_weight=Weight(20, 20),
            rounds_per_block=3, weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)),
        )  # fmt: skip
        name = f"priorities-{next(_names)}"
        self.queues: list[MessageQueue] = []
        for uri in self.uris:
            with MessageQueue(uri) as maker:
                maker.admin.create_ring(name, config)
            self.queues.append(MessageQueue(uri, name, listeners=[lambda *_: None] if listen else []))
        self.config, self.numbers = config, itertools.count(1)
        #: Remaining messages of each book, in the order in which they were sent.
        self.remaining: dict[tuple[str, str], list[bytes]] = {
            (origin, priority): [] for origin in ORIGINS for priority in PRIORITIES
        }
        self.weights: dict[bytes, int] = {}
        self.paused: set[str] = set()
        self.live: list[list[Block]] = []
        self.seen = [0] * len(self.queues)
        self.by_hand = False

    def both(self, call: Callable[[MessageQueue], Any]) -> Any:
        answers = []
        for queue in self.queues:
            try:
                answers.append(call(queue))
            except Exception as error:
                answers.append(type(error).__name__)
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    # Operations.

    @rule(
        book=books,
        weights=st.lists(st.sampled_from([1, 1, 2, 7, 13, 20]), min_size=1, max_size=8),
        in_message=st.booleans(),
    )
    def send(self, book: tuple[str, str], weights: list[int], in_message: bool) -> None:
        origin, priority = book
        payloads = [b"%d" % next(self.numbers) for _ in weights]
        self.remaining[book] += payloads
        self.weights.update(zip(payloads, weights))
        own = priority if in_message else None
        messages = [Message(p, weight=Weight(w, 1), priority=own) for p, w in zip(payloads, weights)]
        options: dict[str, Any] = {} if in_message else {"priority": priority}
        assert self.both(lambda queue: queue.enqueue_messages(origin, messages, **options).count) == len(payloads)

    @rule()
    def send_everywhere(self) -> None:
        """Send one light message to each book, so that many blocks contain both priorities."""
        for origin, priority in self.remaining:
            self.send((origin, priority), [1], False)

    @rule(origin=st.sampled_from(ORIGINS), on=st.booleans())
    def pause(self, origin: str, on: bool) -> None:
        (self.paused.add if on else self.paused.discard)(origin)
        self.both(lambda queue: queue.admin.pause(origin) if on else queue.admin.resume(origin) or None)

    @rule(book=books)
    def force_head(self, book: tuple[str, str]) -> None:
        if self.both(lambda queue: queue.admin.force_set_head(book[0], priority=book[1])) is True:
            assert self.both(lambda queue: queue.inspect.ring_order(1, book[1])) == [book[0]]

    @rule(origin=st.sampled_from(ORIGINS))
    def sweep(self, origin: str) -> None:
        self.both(lambda queue: queue.sweep_queue(origin))

    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        addresses = self.both(lambda queue: [aside.address for aside in queue.set_aside.list()])
        if addresses:
            address, executed = data.draw(st.sampled_from(addresses)), data.draw(st.booleans())
            self.by_hand = True
            self.both(
                lambda queue: (queue.execute_overweight(address, lambda _: None) and None)
                if executed else queue.set_aside.discard(address, "no use")
            )  # fmt: skip

    @rule(limit=st.sampled_from([None, None, (7, 9)]))
    def plan(self, limit: tuple[int, int] | None) -> None:
        fronts, blocks = self.fronts(), []

        def plan(queue: MessageQueue) -> Any:
            block = queue.blocks.plan(limit=limit and Weight(*limit), seed=b"seed")
            blocks.append(block)
            return block_facts(block)

        self.both(plan)
        block = blocks[0]
        assert not block.planned.plus(block.overhead).exceeds(block.limit)
        self.live.append(blocks)
        self.met["high before regular"] += len({claim.priority for claim in block.claims}) == 2
        first = [claim.priority for claim in block.claims]
        if self.config.kept_for_regular == 0 and "high" in first:
            assert first[0] == "high" or fronts["high"] > 0
        if limit is None:
            self.check_nothing_fits(block)

    def fronts(self) -> Counter[str]:
        return Counter(priority for (_, priority), remaining in self.remaining.items() if remaining)

    def check_nothing_fits(self, block: Block) -> None:
        """Check that no capacity is unused: each ready message that was not taken exceeds the rest."""
        room = block.limit[0] - block.planned[0]
        queue = self.queues[0]
        held = {claim.whose for blocks in self.live for claim in blocks[0].claims}
        if self.config.order == "shuffle":
            return
        for origin in ORIGINS:
            if origin in self.paused or (self.config.ordered and origin in held - set(block.origins)):
                continue
            for priority in PRIORITIES:
                waiting = [
                    message
                    for message in queue.inspect.peek(origin, limit=200, priority=priority)
                    if message.state == "waiting"
                ]
                if waiting and not (held & {origin} and self.config.ordered):
                    assert self.weights[waiting[0].payload] > room, (origin, priority, room)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), settled=st.booleans())
    def end(self, data: st.DataObject, settled: bool) -> None:
        blocks = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        whole = [queue.blocks.get(block.token) for queue, block in zip(self.queues, blocks)]
        batches = [list(block.batches()) for block in whole]
        assert all(
            [(b.book, b.page, b.first, b.payloads) for b in store_batches]
            == [(b.book, b.page, b.first, b.payloads) for b in batches[0]]
            for store_batches in batches
        )
        answers = [
            data.draw(st.sampled_from([Done(), Done(), Corrupt(), Yield(), None]))
            for batch in batches[0]
            for _ in batch.payloads
        ]
        for queue, block, store_batches in zip(self.queues, whole, batches):
            remaining_answers = iter(answers)
            reports = [
                report
                for batch in store_batches
                for report in batch.answers([next(remaining_answers) or Yield() for _ in batch.payloads])
            ]
            queue.blocks.report(block, reports)
        ended = iter(whole)
        self.both(
            lambda queue: vars(queue.blocks.settle(next(ended)) if settled else queue.blocks.release(next(ended)))
        )

    @rule(limit=st.sampled_from([(5, 5), (20, 20)]))
    def service(self, limit: tuple[int, int]) -> None:
        tried: list[list[tuple[str, str, bytes]]] = []

        def service(queue: MessageQueue) -> Any:
            mine: list[tuple[str, str, bytes]] = []
            tried.append(mine)
            done = queue.service_queues(
                lambda delivery: mine.append((delivery.origin, delivery.priority, delivery.payload)),
                Weight(*limit),
                seed=b"seed",
            )
            return tuple(done.weight), done.processed

        self.both(service)
        assert all(deliveries == tried[0] for deliveries in tried)
        for book in self.remaining:
            numbers = [int(payload) for origin, priority, payload in tried[0] if (origin, priority) == book]
            assert numbers == sorted(numbers)

    # Invariants.

    @invariant()
    def nothing_is_lost_or_overtaken(self) -> None:
        if not hasattr(self, "queues"):
            return
        ids = {
            message_id(payload): (book, payload) for book, remaining in self.remaining.items() for payload in remaining
        }
        gone: list[list[Any]] = []
        for at, queue in enumerate(self.queues):
            assert queue.check() == []
            fresh = []
            for event in queue.inspect.events(after=self.seen[at]):
                self.seen[at] = event.seq
                if event.name in FINAL:
                    assert event.id is not None
                    book, payload = ids.pop(event.id) if at == 0 else (None, None)
                    assert at or (event.origin, event.priority) == book
                    fresh.append((event.name, event.id))
                    if at == 0 and book is not None and payload is not None:
                        self.remaining[book].remove(payload)
            gone.append(fresh)
        assert all(ended == gone[0] for ended in gone)
        for (origin, priority), remaining in self.remaining.items():
            assert self.both(lambda queue: queue.footprint(origin, priority).count) == len(remaining)  # noqa: B023
        self.met.update(name for name, _ in gone[0])

    def teardown(self) -> None:
        for queue in getattr(self, "queues", ()):
            queue.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_priorities_on_sqlite(tmp_path: Path, clock: Clock, hasty: None) -> None:
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(25, 30), Priorities)
    assert met["Processed"] and met["high before regular"]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_random_priorities_on_both_stores(tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None) -> None:
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(12, 25), Priorities)
