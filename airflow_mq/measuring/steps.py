"""Every step of servicing, taken on a real ring and timed.

No step can be timed by itself: a block does many of them in one transaction. So blocks are timed that
differ in one step, taken many times, and what they differ by is divided by how many times it was taken.
All of it is done once per repetition, in turn, so that a machine that is slow for a while is slow for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles
from time import perf_counter

from ..core.config import RingConfig
from ..core.errors import InvalidInput
from ..core.message import Address, Message
from ..core.weigher import LinearWeigher
from ..core.weight import Costs, Weight
from ..queue import Block, MessageQueue, Report
from ..store import Store, StoreAddress, open_store
from .scratch import beside

#: How many queues, pages and messages are taken at once, so that a single one can be told.
QUEUES, PAGES, ITEMS = 192, 192, 4096
#: Bytes of a message; what is in it does not matter to any step.
SIZE = 20
REPEATS = 9

METHODS = {
    "bump_service_head": "a block that finds nothing: planned and settled, which takes and lets go of the ring twice",
    "set_service_head": "one call that makes another ready queue the head",
    "service_queue_base": f"a block over {QUEUES} paused queues, less one that finds nothing, by {QUEUES}",
    "service_page_base_completion": f"a queue of {PAGES} pages of one message, less one of one page, by {PAGES - 1}, "
    "less the item",
    "service_page_base_no_completion": f"a block that takes the first of two messages of {QUEUES} queues, less one "
    f"that finds nothing, by {QUEUES}, less queue and item",
    "service_page_item": f"a queue of {ITEMS} messages in a page, less one of one message, by {ITEMS - 1}",
    "ready_ring_unknit": f"a block that empties {QUEUES} queues of one message, less one that finds nothing, by "
    f"{QUEUES}, less queue, page and item",
    "ready_ring_knit": f"the same where the queues were not in the ring before, less where they were, by {QUEUES}",
    "execute_overweight_page_updated": "one message executed by hand whose page keeps another",
    "execute_overweight_page_removed": "one message executed by hand that was the last of its page",
    "reap_page": "one old page reaped, with the message it held",
}


@dataclass(frozen=True)
class Measured:
    """What a step costs, in milliseconds."""

    step: str
    median: float
    #: A quarter of the repetitions took less, and a quarter took more.
    low: float
    high: float
    how: str


def measure(
    address: StoreAddress, repeats: int = REPEATS, tell: Callable[[str, float], None] | None = None
) -> list[Measured]:
    """Measure every step on a ring beside this store; the settings of its own rings do not matter to that."""
    if not 3 <= repeats <= 1000:
        raise InvalidInput(f"measuring is repeated 3 to 1,000 times, not {repeats!r}")
    found: dict[str, list[float]] = {step: [] for step in METHODS}
    with beside(address) as made:
        store = open_store(made)
        try:
            bench = _Bench(store)
            bench.once()
            for number in range(1, repeats + 1):
                if tell is not None:
                    tell(f"{number} of {repeats}", (number - 1) / repeats)
                for step, seconds in bench.once().items():
                    found[step].append(1000 * seconds)
        finally:
            store.close()
    return [_measured(step, times) for step, times in found.items()]


def _measured(step: str, times: Sequence[float]) -> Measured:
    low, _, high = quantiles(times, n=4)
    return Measured(step, max(median(times), 0.0), max(low, 0.0), max(high, 0.0), METHODS[step])


def costs_of(measured: Sequence[Measured], per_millisecond: int = 1) -> Costs:
    """The costs of a ring that counts so many units of time to the millisecond: medians, rounded up."""
    return Costs(**{one.step: Weight(ceil(one.median * per_millisecond), 0) for one in measured})


class _Bench:
    """Rings in a store of their own, each used once."""

    def __init__(self, store: Store[object]) -> None:
        self.store = store
        # Steps are the same in every order; the contract's takes each of them once.
        self.config = RingConfig(
            order="rotation", service_weight=Weight(1 << 40, 1 << 40), heap_size=1 << 17, max_stale=0,
            weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)),
        )  # fmt: skip
        self.number = 0

    @contextmanager
    def ring(self, **settings: object) -> Iterator[MessageQueue]:
        """A new ring, set like this."""
        self.number += 1
        name = f"r{self.number}"
        with_settings = RingConfig.from_json({**self.config.to_json(), **settings})
        MessageQueue(self.store).admin.create_ring(name, with_settings)
        yield MessageQueue(self.store, name, actor="measuring")

    def once(self) -> dict[str, float]:
        """Every step once: what it took, in seconds."""
        nothing, one = self.empty(), self.of_one_queue(1)
        item = (self.of_one_queue(ITEMS) - one) / (ITEMS - 1)
        base = (self.paused() - nothing) / QUEUES
        page = (self.of_one_queue(PAGES, heap_size=SIZE + 12) - one) / (PAGES - 1) - item
        kept = (self.halved() - nothing) / QUEUES - base - item
        knit, fresh = self.emptied(knit=True), self.emptied(knit=False)
        updated, removed = self.executed()
        return {
            "bump_service_head": nothing,
            "set_service_head": self.headed(),
            "service_queue_base": base,
            "service_page_base_completion": page,
            "service_page_base_no_completion": kept,
            "service_page_item": item,
            "ready_ring_unknit": (knit - nothing) / QUEUES - base - page - item,
            "ready_ring_knit": (fresh - knit) / QUEUES,
            "execute_overweight_page_updated": updated,
            "execute_overweight_page_removed": removed,
            "reap_page": self.reaped(),
        }

    # The blocks that are timed.

    def empty(self) -> float:
        with self.ring() as queue:
            return _block(queue)

    def of_one_queue(self, messages: int, **settings: object) -> float:
        with self.ring(**settings) as queue:
            queue.enqueue_messages("a", [bytes(SIZE)] * messages)
            _knit(queue)
            return _block(queue)

    def paused(self) -> float:
        with self.ring() as queue:
            self._fill(queue)
            _knit(queue)
            for number in range(QUEUES):
                queue.admin.pause(f"q{number}")
            return _block(queue)

    def emptied(self, *, knit: bool) -> float:
        with self.ring() as queue:
            self._fill(queue)
            if knit:
                _knit(queue)
            return _block(queue)

    def halved(self) -> float:
        """The second message of each queue would fit a block, and does not fit what the first ones left of it."""
        with self.ring() as queue:
            limit = Weight(QUEUES, 1 << 40)
            two = [Message(bytes(SIZE)), Message(bytes(SIZE), weight=limit)]
            queue.enqueue_messages([(f"q{number}", message) for number in range(QUEUES) for message in two])
            _knit(queue)
            return _block(queue, limit)

    def headed(self) -> float:
        with self.ring() as queue:
            self._fill(queue)
            _knit(queue)
            return _timed(lambda: queue.admin.force_set_head(f"q{QUEUES // 2}"))

    def executed(self) -> tuple[float, float]:
        with self.ring(service_weight=[4, 1 << 40]) as queue:
            queue.enqueue_messages("a", [bytes(SIZE)] * 2, weight=Weight(5, 0))
            _block(queue)
            first, second = (Address("a", 0, index) for index in (0, 1))
            return (
                _timed(lambda: queue.execute_overweight(first, _nothing)),
                _timed(lambda: queue.execute_overweight(second, _nothing)),
            )

    def reaped(self) -> float:
        with self.ring(heap_size=SIZE + 12) as queue:
            queue.enqueue_messages("a", [bytes(SIZE)] * 4)
            _knit(queue)
            queue.sweep_queue("a")
            return _timed(lambda: queue.reap_page("a", 0))

    def _fill(self, queue: MessageQueue) -> None:
        queue.enqueue_messages([(f"q{number}", bytes(SIZE)) for number in range(QUEUES)])


def _nothing(delivery: object) -> None:
    """A processor that costs nothing."""


def _knit(queue: MessageQueue) -> None:
    """Let what was sent lie in pages, and its queues in the ring: a block that nothing fits looks at them."""
    queue.blocks.release(queue.blocks.plan(limit=Weight(0, 0)))


def _block(queue: MessageQueue, limit: Weight | None = None) -> float:
    """A block in which everything is done at once: planned, reported, settled."""

    def work() -> None:
        block = queue.blocks.plan(limit=limit)
        reports = list(_reports(block))
        if reports:
            queue.blocks.report(block, reports)
        queue.blocks.settle(block)

    return _timed(work)


def _reports(block: Block) -> Iterator[Report]:
    for claim in block.claims:
        for run in claim.runs:
            if run.count and not run.decisions:
                yield Report(claim.origin, run.page, run.first, run.first + run.count - 1)


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began
