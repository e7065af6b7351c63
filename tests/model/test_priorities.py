"""Both priorities at random, on all stores at once: nothing is lost, overtaken within its book, or left over."""

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
from airflow_mq.core.message import message_id
from airflow_mq.core.weigher import LinearWeigher
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
    """What anybody can do with two priorities; every store must answer alike."""

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
        #: What is in each book and not gone, in the order in which it was sent.
        self.left: dict[tuple[str, str], list[bytes]] = {
            (origin, priority): [] for origin in ORIGINS for priority in PRIORITIES
        }
        self.weights: dict[bytes, int] = {}
        self.paused: set[str] = set()
        self.live: list[list[Block]] = []
        self.seen = [0] * len(self.queues)
        self.by_hand = False

    def both(self, call: Callable[[MessageQueue], Any]) -> Any:
        found = []
        for queue in self.queues:
            try:
                found.append(call(queue))
            except Exception as error:
                found.append(type(error).__name__)
        assert all(one == found[0] for one in found), found
        return found[0]

    # What anybody can do.

    @rule(
        book=books, weights=st.lists(st.sampled_from([1, 1, 2, 7, 13, 20]), min_size=1, max_size=8), said=st.booleans()
    )
    def send(self, book: tuple[str, str], weights: list[int], said: bool) -> None:
        origin, priority = book
        payloads = [b"%d" % next(self.numbers) for _ in weights]
        self.left[book] += payloads
        self.weights.update(zip(payloads, weights))
        own = priority if said else None
        messages = [Message(p, weight=Weight(w, 1), priority=own) for p, w in zip(payloads, weights)]
        how: dict[str, Any] = {} if said else {"priority": priority}
        assert self.both(lambda queue: queue.enqueue_messages(origin, messages, **how).count) == len(payloads)

    @rule()
    def send_everywhere(self) -> None:
        """One light message to each book, so that many a block finds both priorities."""
        for origin, priority in self.left:
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
        aside = self.both(lambda queue: [one.address for one in queue.set_aside.list()])
        if aside:
            one, executed = data.draw(st.sampled_from(aside)), data.draw(st.booleans())
            self.by_hand = True
            self.both(
                lambda queue: (queue.execute_overweight(one, lambda _: None) and None)
                if executed else queue.set_aside.discard(one, "no use")
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
        return Counter(priority for (_, priority), left in self.left.items() if left)

    def check_nothing_fits(self, block: Block) -> None:
        """Nothing is kept for nobody: whatever is ready and not taken is more than what is left."""
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
                    one for one in queue.inspect.peek(origin, limit=200, priority=priority) if one.state == "waiting"
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
            [(b.book, b.page, b.first, b.payloads) for b in found]
            == [(b.book, b.page, b.first, b.payloads) for b in batches[0]]
            for found in batches
        )
        answers = [
            data.draw(st.sampled_from([Done(), Done(), Corrupt(), Yield(), None]))
            for batch in batches[0]
            for _ in batch.payloads
        ]
        for queue, block, found in zip(self.queues, whole, batches):
            told = iter(answers)
            reports = [one for batch in found for one in batch.answers([next(told) or Yield() for _ in batch.payloads])]
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
                lambda one: mine.append((one.origin, one.priority, one.payload)), Weight(*limit), seed=b"seed"
            )
            return tuple(done.weight), done.processed

        self.both(service)
        assert all(one == tried[0] for one in tried)
        for book in self.left:
            of_it = [int(payload) for origin, priority, payload in tried[0] if (origin, priority) == book]
            assert of_it == sorted(of_it)

    # What is always true.

    @invariant()
    def nothing_is_lost_or_overtaken(self) -> None:
        if not hasattr(self, "queues"):
            return
        ids = {message_id(payload): (book, payload) for book, left in self.left.items() for payload in left}
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
                        self.left[book].remove(payload)
            gone.append(fresh)
        assert all(one == gone[0] for one in gone)
        for (origin, priority), left in self.left.items():
            assert self.both(lambda queue: queue.footprint(origin, priority).count) == len(left)  # noqa: B023
        self.met.update(name for name, _ in gone[0])

    def teardown(self) -> None:
        for queue in getattr(self, "queues", ()):
            queue.close()


@pytest.mark.timeout(0)
def test_priorities_at_random(tmp_path: Path, clock: Clock, hasty: None) -> None:
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(25, 30), Priorities)
    assert met["Processed"] and met["high before regular"]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_priorities_at_random_on_both_stores(
    tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None
) -> None:
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(12, 25), Priorities)
