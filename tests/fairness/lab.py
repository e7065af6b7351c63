"""Blocks planned and settled one after the other, and what each origin got of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow_mq import Block, LinearWeigher, MessageQueue, RingConfig, Weight
from airflow_mq.store import parse, upgrade

#: A message costs what its sender says, and one unit otherwise.
UNIT = LinearWeigher(Weight(1, 1), Weight(0, 0))


@contextmanager
def ring(uri: str, order: str, limit: int = 20, **settings: Any) -> Iterator[MessageQueue]:
    """A ring of this order, on a store that may have others already."""
    upgrade(parse(uri))
    config = RingConfig(**{"order": order, "service_weight": Weight(limit, limit), "weigher": UNIT, **settings})
    with MessageQueue(uri) as maker:
        name = f"{order}-{len(maker.admin.rings())}"
        maker.admin.create_ring(name, config)
    with MessageQueue(uri, name) as queue:
        yield queue


def send(queue: MessageQueue, origin: str, count: int, cost: int = 1) -> None:
    """So many messages that cost so much each."""
    weight = None if cost == 1 else Weight(cost, cost)
    queue.enqueue_messages(origin, (b"%d" % number for number in range(count)), weight=weight)


@dataclass
class Got:
    """Block after block: how much of its weight each origin got."""

    blocks: list[dict[str, int]] = field(default_factory=list)
    #: Messages, by the block in which they were started.
    starts: list[dict[str, int]] = field(default_factory=list)

    def total(self, origin: str, since: int = 0) -> int:
        return sum(block.get(origin, 0) for block in self.blocks[since:])

    def waits(self, origin: str) -> list[int]:
        """In which block each message of an origin started, counted from the first one on."""
        return [number for number, block in enumerate(self.starts, 1) for _ in range(block.get(origin, 0))]

    def first(self, origin: str) -> int:
        """The block in which an origin was serviced first; beyond the last, if it never was."""
        return next((n for n, block in enumerate(self.blocks, 1) if block.get(origin)), len(self.blocks) + 1)

    def add(self, block: Block) -> None:
        got: dict[str, int] = {}
        started: dict[str, int] = {}
        for claim in block.claims:
            got[claim.origin] = got.get(claim.origin, 0) + claim.planned[0]
            started[claim.origin] = started.get(claim.origin, 0) + claim.messages
        self.blocks.append(got)
        self.starts.append(started)


def done(queue: MessageQueue, block: Block) -> None:
    """Everything of a block went well."""
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def run_blocks(queue: MessageQueue, count: int, got: Got | None = None, **how: Any) -> Got:
    """Plan and settle so many blocks."""
    got = got or Got()
    for _ in range(count):
        block = queue.blocks.plan(**how)
        got.add(block)
        done(queue, block)
    return got


def run_until_empty(queue: MessageQueue, most: int = 1000) -> Got:
    """Plan and settle until nothing is left."""
    got = Got()
    for _ in range(most):
        block = queue.blocks.plan()
        if not block.messages:
            return got
        got.add(block)
        done(queue, block)
    raise AssertionError(f"not empty after {most} blocks")


def mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 where all are equal, 1/n where one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def fifo_waits(arrivals: Sequence[tuple[str, int]], limit: int) -> dict[str, list[int]]:
    """In which block each message would start, were all of them one queue: (origin, cost) as they came."""
    waits: dict[str, list[int]] = {}
    block, used = 1, 0
    for origin, cost in arrivals:
        if used + cost > limit:
            block, used = block + 1, 0
        used += cost
        waits.setdefault(origin, []).append(block)
    return waits
