"""What work costs, and the meter that pays for it.

A weight has two parts, each an unsigned 64-bit number, and is compared part by part:
it *fits* when both parts fit and *exceeds* when any part exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from .errors import InvalidWeight

LARGEST = 2**64 - 1


class Weight(NamedTuple):
    """What work costs: `time` in milliseconds and `size` in bytes, unless a ring says otherwise."""

    time: int
    size: int

    def exceeds(self, other: Weight) -> bool:
        """Whether any part is larger than the other's."""
        return self.time > other.time or self.size > other.size

    def plus(self, other: Weight) -> Weight:
        """The sum, which stops at the largest number there is."""
        return Weight(min(self.time + other.time, LARGEST), min(self.size + other.size, LARGEST))

    def minus(self, other: Weight) -> Weight | None:
        """The difference, or nothing if it would be negative in any part."""
        if other.exceeds(self):
            return None
        return Weight(self.time - other.time, self.size - other.size)

    def at_least(self, other: Weight) -> Weight:
        """The larger of the two, part by part."""
        return Weight(max(self.time, other.time), max(self.size, other.size))

    def part_of(self, limit: Weight) -> float:
        """How much of a limit this is, by the part of which it is the most; a part without a limit does not count."""
        return max((its / most for its, most in zip(self, limit) if most), default=0.0)

    @classmethod
    def of(cls, value: Any) -> Weight:
        """Check what a caller gave as a weight: a pair, or a mapping with `time` and `size`."""
        if isinstance(value, dict):
            if set(value) != {"time", "size"}:
                raise InvalidWeight(f"a weight has a time and a size and nothing else, not {sorted(map(str, value))}")
            value = (value["time"], value["size"])
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise InvalidWeight(f"a weight is a pair (time, size), not {_shown(value)}")
        for part in value:
            if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part <= LARGEST:
                raise InvalidWeight(f"each part of a weight is a whole number from 0 to {LARGEST}, not {_shown(part)}")
        return cls(*value)

    def __str__(self) -> str:
        return f"{self.time:,}/{self.size:,}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def total_weight(weights: Sequence[Weight]) -> Weight:
    """The sum of many weights, of which mostly all are alike."""
    if not weights:
        return ZERO
    weight, count = weights[0], len(weights)
    if weights.count(weight) == count:
        return Weight(weight[0] * count, weight[1] * count)
    return Weight(sum(weight[0] for weight in weights), sum(weight[1] for weight in weights))


ZERO = Weight(0, 0)
UNLIMITED = Weight(LARGEST, LARGEST)


class Meter:
    """A limit and what is consumed of it. Consuming either fits whole or changes nothing."""

    __slots__ = ("limit", "size", "time")

    def __init__(self, limit: Weight) -> None:
        self.limit = limit
        self.time = 0
        self.size = 0

    @property
    def consumed(self) -> Weight:
        """What was taken from the limit so far."""
        return Weight(self.time, self.size)

    @property
    def left(self) -> Weight:
        """What can still be taken."""
        return Weight(self.limit[0] - self.time, self.limit[1] - self.size)

    def fits(self, weight: Weight) -> bool:
        """Whether `weight` could be consumed."""
        return self.time + weight[0] <= self.limit[0] and self.size + weight[1] <= self.limit[1]

    def consume(self, weight: Weight) -> bool:
        """Take `weight` if it fits whole; otherwise change nothing and say so."""
        time, size = self.time + weight[0], self.size + weight[1]
        if time > self.limit[0] or size > self.limit[1]:
            return False
        self.time, self.size = time, size
        return True


@dataclass(frozen=True)
class Costs:
    """What each step of servicing costs. A step is paid before it is taken."""

    bump_service_head: Weight = ZERO
    set_service_head: Weight = ZERO
    service_queue_base: Weight = ZERO
    service_page_base_completion: Weight = ZERO
    service_page_base_no_completion: Weight = ZERO
    service_page_item: Weight = ZERO
    ready_ring_unknit: Weight = ZERO
    ready_ring_knit: Weight = ZERO
    execute_overweight_page_updated: Weight = ZERO
    execute_overweight_page_removed: Weight = ZERO
    reap_page: Weight = ZERO

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, Weight.of(getattr(self, field.name)))

    @property
    def visit(self) -> Weight:
        """What looking at a queue costs, before any page of it."""
        return self.service_queue_base.plus(self.ready_ring_unknit)

    @property
    def page(self) -> Weight:
        """What opening a page costs: whether it will complete is not known yet, so the larger."""
        return self.service_page_base_completion.at_least(self.service_page_base_no_completion)

    @property
    def execution(self) -> Weight:
        """What keeping the books of one message executed by hand costs at most."""
        return self.execute_overweight_page_updated.at_least(self.execute_overweight_page_removed)

    @property
    def overhead(self) -> Weight:
        """What servicing a single message costs beside the message."""
        return self.bump_service_head.plus(self.visit).plus(self.page).plus(self.service_page_item)

    def to_json(self) -> dict[str, list[int]]:
        """Only the steps that cost something."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: list(cost) for name, cost in pairs if cost != ZERO}


def max_message_weight(limit: Weight, costs: Costs) -> Weight | None:
    """The heaviest message that a block of this limit can take, or nothing if it can take none."""
    return limit.minus(costs.overhead)
