"""Helpers that plan and settle blocks, and measure each origin's share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow_mq import Block, LinearWeigher, MessageQueue, RingConfig, Weight
from airflow_mq.engine.store import parse, upgrade

#: A message costs its declared weight, and one unit without one.
UNIT = LinearWeigher(Weight(1, 1), Weight(0, 0))


@contextmanager
def ring(uri: str, order: str, limit: int = 20, **settings: Any) -> Iterator[MessageQueue]:
    """Make a ring with this order, and yield a queue on it."""
    upgrade(parse(uri))
    config = RingConfig(**{"order": order, "service_weight": Weight(limit, limit), "weigher": UNIT, **settings})
    with MessageQueue(uri) as maker:
        name = f"{order}-{len(maker.admin.rings())}"
        maker.admin.create_ring(name, config)
    with MessageQueue(uri, name) as queue:
        yield queue


def send(queue: MessageQueue, origin: str, count: int, cost: int = 1) -> None:
    """Send messages of equal cost."""
    weight = None if cost == 1 else Weight(cost, cost)
    queue.enqueue_messages(origin, (b"%d" % number for number in range(count)), weight=weight)


@dataclass
class Measured:
    """The weight that each origin got, block by block."""

    blocks: list[dict[str, int]] = field(default_factory=list)
    #: Started messages, block by block.
    starts: list[dict[str, int]] = field(default_factory=list)

    def total(self, origin: str, since: int = 0) -> int:
        return sum(block.get(origin, 0) for block in self.blocks[since:])

    def waits(self, origin: str) -> list[int]:
        """Return the number of the block in which each message of an origin started."""
        return [number for number, block in enumerate(self.starts, 1) for _ in range(block.get(origin, 0))]

    def first(self, origin: str) -> int:
        """Return the first block that serviced an origin, or one past the last block."""
        return next((n for n, block in enumerate(self.blocks, 1) if block.get(origin)), len(self.blocks) + 1)

    def add(self, block: Block) -> None:
        got: dict[str, int] = {}
        started: dict[str, int] = {}
        for claim in block.claims:
            got[claim.origin] = got.get(claim.origin, 0) + claim.planned[0]
            started[claim.origin] = started.get(claim.origin, 0) + claim.messages
        self.blocks.append(got)
        self.starts.append(started)


def complete_block(queue: MessageQueue, block: Block) -> None:
    """Complete all messages of a block and settle it."""
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def run_blocks(queue: MessageQueue, count: int, got: Measured | None = None, **options: Any) -> Measured:
    """Plan and settle a number of blocks."""
    got = got or Measured()
    for _ in range(count):
        block = queue.blocks.plan(**options)
        got.add(block)
        complete_block(queue, block)
    return got


def run_until_empty(queue: MessageQueue, max_blocks: int = 1000) -> Measured:
    """Plan and settle until no message is left."""
    got = Measured()
    for _ in range(max_blocks):
        block = queue.blocks.plan()
        if not block.messages:
            return got
        got.add(block)
        complete_block(queue, block)
    raise AssertionError(f"not empty after {max_blocks} blocks")


def mean(numbers: Iterable[float]) -> float:
    values = list(numbers)
    return sum(values) / len(values)


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1/n if one origin has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def fifo_waits(arrivals: Sequence[tuple[str, int]], limit: int) -> dict[str, list[int]]:
    """Return the start block of each message in a single queue; `arrivals` are pairs of origin and cost."""
    waits: dict[str, list[int]] = {}
    block, used = 1, 0
    for origin, cost in arrivals:
        if used + cost > limit:
            block, used = block + 1, 0
        used += cost
        waits.setdefault(origin, []).append(block)
    return waits
