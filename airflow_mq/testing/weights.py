"""Measured weights: the costs of the steps of servicing, taken on a ring beside this store and timed.

The ring is removed again; the user's rings are never touched. A single step cannot be timed: a block takes many of them
in one transaction. So the measurement times blocks that differ in one step, taken many times, and divides the
difference by that number. Every repetition measures each step once, so that a phase in which the machine is slow
affects all steps alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import quantiles
from time import perf_counter

from ..engine.queue import MessageQueue
from ..engine.queue.blocks.block import Block
from ..engine.queue.values import Report
from ..engine.rules.config import RingConfig
from ..engine.rules.errors import InvalidInput
from ..engine.rules.message import Address, Message
from ..engine.rules.weight import Costs, LinearWeigher, Weight
from ..engine.store import Store, StoreAddress, open_store
from .scratch import beside

#: Numbers of queues, pages and messages per block, so that a single one is measurable.
QUEUES, PAGES, ITEMS = 192, 192, 4096
#: Size of a message; its content does not matter.
SIZE = 20
REPEATS = 9

METHODS = {
    "bump_service_head": "a block that finds nothing: planned and settled, which acquires and releases the ring twice",
    "set_service_head": "one call that makes another ready queue the head",
    "service_queue_base": f"a block over {QUEUES} paused queues, less one that finds nothing, by {QUEUES}",
    "service_page_base_completion": f"a queue of {PAGES} pages of one message, less one of one page, by {PAGES - 1}, "
    "less the item",
    "service_page_base_no_completion": f"a block that takes the first of two messages of {QUEUES} queues, less one "
    f"that finds nothing, by {QUEUES}, less queue and item",
    "service_page_item": f"a queue of {ITEMS} messages in a page, less one of one message, by {ITEMS - 1}",
    "ready_ring_unknit": f"a block that empties {QUEUES} queues of one message, less one that finds nothing, by "
    f"{QUEUES}, less queue, page and item",
    "ready_ring_knit": "a block over queues that were not in the ring before, less one over queues that were, by "
    f"{QUEUES}",
    "execute_overweight_page_updated": "one message executed by hand whose page keeps another",
    "execute_overweight_page_removed": "one message executed by hand that was the last of its page",
    "reap_page": "one old page reaped, with the message it held",
}


@dataclass(frozen=True)
class Measured:
    """Cost of a step, in milliseconds."""

    step: str
    median: float
    #: Lower and upper quartile of the repetitions.
    low: float
    high: float
    how: str


def measure(
    address: StoreAddress, repeats: int = REPEATS, progress: Callable[[str, float], None] | None = None
) -> list[Measured]:
    """Measure every step on a ring beside this store; the settings of the store's rings do not matter."""
    if not 3 <= repeats <= 1000:
        raise InvalidInput(f"invalid repeats {repeats!r}: expected 3 to 1,000")
    found: dict[str, list[float]] = {step: [] for step in METHODS}
    with beside(address) as made:
        store = open_store(made)
        try:
            bench = _Bench(store)
            bench.once()
            for number in range(1, repeats + 1):
                if progress is not None:
                    progress(f"{number} of {repeats}", (number - 1) / repeats)
                for step, seconds in bench.once().items():
                    found[step].append(1000 * seconds)
        finally:
            store.close()
    # The second quartile is the median.
    quartiles = {step: [max(quartile, 0.0) for quartile in quantiles(times, n=4)] for step, times in found.items()}
    return [Measured(step, middle, low, high, METHODS[step]) for step, (low, middle, high) in quartiles.items()]


def costs_of(measured: Sequence[Measured], per_millisecond: int = 1) -> Costs:
    """Return the costs of a ring with this many units of time per millisecond: medians, rounded up."""
    return Costs(**{cost.step: Weight(ceil(cost.median * per_millisecond), 0) for cost in measured})


class _Bench:
    """Rings in a temporary store, each used once."""

    def __init__(self, store: Store[object]) -> None:
        self.store = store
        # Steps are equal in every order; the contract's takes each of them once.
        self.config = RingConfig(
            order="rotation",
            service_weight=Weight(1 << 40, 1 << 40),
            heap_size=1 << 17,
            max_stale=0,
            weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)),
        )
        self.number = 0

    def ring(self, **settings: object) -> MessageQueue:
        """Create a ring with these settings."""
        self.number += 1
        name = f"r{self.number}"
        with_settings = RingConfig.from_json({**self.config.to_json(), **settings})
        MessageQueue(self.store).admin.create_ring(name, with_settings)
        return MessageQueue(self.store, name, actor="measuring")

    def once(self) -> dict[str, float]:
        """Take every step once; return their times in seconds."""
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

    def empty(self) -> float:
        return _block(self.ring())

    def of_one_queue(self, messages: int, **settings: object) -> float:
        queue = self.ring(**settings)
        queue.enqueue_messages("a", [bytes(SIZE)] * messages)
        _knit(queue)
        return _block(queue)

    def paused(self) -> float:
        queue = self.filled()
        for number in range(QUEUES):
            queue.admin.pause(f"q{number}")
        return _block(queue)

    def emptied(self, *, knit: bool) -> float:
        return _block(self.filled(knit=knit))

    def halved(self) -> float:
        """Time a block in which the second message of each queue fits a block, but not the rest of this one."""
        queue, limit = self.ring(), Weight(QUEUES, 1 << 40)
        two = [Message(bytes(SIZE)), Message(bytes(SIZE), weight=limit)]
        queue.enqueue_messages([(f"q{number}", message) for number in range(QUEUES) for message in two])
        _knit(queue)
        return _block(queue, limit)

    def headed(self) -> float:
        queue = self.filled()
        return _timed(lambda: queue.admin.force_set_head(f"q{QUEUES // 2}"))

    def executed(self) -> tuple[float, float]:
        queue = self.ring(service_weight=[4, 1 << 40])
        queue.enqueue_messages("a", [bytes(SIZE)] * 2, weight=Weight(5, 0))
        _block(queue)
        first, second = (Address("a", 0, index) for index in (0, 1))
        return (
            _timed(lambda: queue.execute_overweight(first, _nothing)),
            _timed(lambda: queue.execute_overweight(second, _nothing)),
        )

    def reaped(self) -> float:
        queue = self.ring(heap_size=SIZE + 12)
        queue.enqueue_messages("a", [bytes(SIZE)] * 4)
        _knit(queue)
        queue.sweep_queue("a")
        return _timed(lambda: queue.reap_page("a", 0))

    def filled(self, *, knit: bool = True) -> MessageQueue:
        """Create a ring of queues of one message, knit or not."""
        queue = self.ring()
        queue.enqueue_messages([(f"q{number}", bytes(SIZE)) for number in range(QUEUES)])
        if knit:
            _knit(queue)
        return queue


def _nothing(delivery: object) -> None:
    """Process a message without any work."""


def _knit(queue: MessageQueue) -> None:
    """Cut sent messages into pages and knit their queues, by a block in which no message fits."""
    queue.blocks.release(queue.blocks.plan(limit=Weight(0, 0)))


def _block(queue: MessageQueue, limit: Weight | None = None) -> float:
    """Time a block in which all messages are done: planned, reported, settled."""

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
