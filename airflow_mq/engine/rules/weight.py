"""Weights of work, weighers that predict them, the meter that pays, and the costs of steps.

A weight has two parts, each an unsigned 64-bit number. It *fits* when both parts fit and *exceeds* when any part
exceeds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from .characters import shown
from .errors import ConfigRefused, InvalidInput, InvalidWeight
from .units import byte_count, milliseconds, size_text, time_text

LARGEST = 2**64 - 1


class Weight(NamedTuple):
    """Cost of work: `time` in milliseconds and `size` in bytes, unless a ring defines other units."""

    time: int
    size: int

    def exceeds(self, other: Weight) -> bool:
        """Return whether any part is larger than the other's."""
        return self.time > other.time or self.size > other.size

    def plus(self, other: Weight) -> Weight:
        """Return the sum; each part saturates at the largest number."""
        return Weight(min(self.time + other.time, LARGEST), min(self.size + other.size, LARGEST))

    def minus(self, other: Weight) -> Weight | None:
        """Return the difference, or None if any part would be negative."""
        if other.exceeds(self):
            return None
        return Weight(self.time - other.time, self.size - other.size)

    def at_least(self, other: Weight) -> Weight:
        """Return the larger of both weights, part by part."""
        return Weight(max(self.time, other.time), max(self.size, other.size))

    def part_of(self, limit: Weight) -> float:
        """Return the larger fraction of a limit that a part takes; skip parts whose limit is zero."""
        return max((part / most for part, most in zip(self, limit) if most), default=0.0)

    @classmethod
    def of(cls, value: object) -> Weight:
        """Return a caller's value as a weight: a pair, a mapping with `time` and `size`, or a text such as `20m/4GiB`.

        The time can be a `timedelta` or a text such as `90s`, the size a text such as `4GiB`.

        :raises InvalidWeight: if it is none of these.
        """
        given = value
        if isinstance(value, str):
            value = tuple(re.split(" ?[/·] ?", value))
        elif isinstance(value, dict):
            if set(value) != {"time", "size"}:
                raise InvalidWeight(
                    f"invalid weight with the keys {_shown(sorted(map(shown, value)))}: expected time and size only"
                )
            value = (value["time"], value["size"])
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise InvalidWeight(
                f"invalid weight {_shown(given)}: expected TIME/SIZE such as 20m/4GiB, or a pair (time, size)"
            )
        if type(value[0]) is not int or type(value[1]) is not int:
            try:
                value = (milliseconds(value[0], isinstance(given, str)), byte_count(value[1], isinstance(given, str)))
            except InvalidInput as error:
                raise InvalidWeight(f"invalid part of a weight: {error}") from None
        for part in value:
            if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part <= LARGEST:
                raise InvalidWeight(
                    f"invalid part of a weight {_shown(part)}: expected a whole number from 0 to {LARGEST}"
                )
        return cls(*value)

    def __str__(self) -> str:
        """Return the weight as exact text: `10 min · 1.5 MiB`."""
        return f"{time_text(self.time)} · {size_text(self.size)}"

    @property
    def typed(self) -> str:
        """The weight as it is typed in a command: `10min/1.5MiB`."""
        return re.sub("[ ,]", "", f"{time_text(self.time)}/{size_text(self.size)}")


def _shown(value: object) -> str:
    text = shown(value, 41, repr)
    return text if len(text) <= 40 else text[:37] + "..."


def total_weight(weights: Sequence[Weight]) -> Weight:
    """Return the sum of many weights; fast if all are alike."""
    if not weights:
        return ZERO
    weight, count = weights[0], len(weights)
    if weights.count(weight) == count:
        return Weight(weight[0] * count, weight[1] * count)
    return Weight(sum(weight[0] for weight in weights), sum(weight[1] for weight in weights))


ZERO = Weight(0, 0)
UNLIMITED = Weight(LARGEST, LARGEST)


class Meter:
    """A limit and the weight consumed of it. A step is consumed whole or not at all."""

    __slots__ = ("limit", "size", "time")

    def __init__(self, limit: Weight) -> None:
        self.limit = limit
        self.time = 0
        self.size = 0

    @property
    def consumed(self) -> Weight:
        """Weight consumed so far."""
        return Weight(self.time, self.size)

    @property
    def left(self) -> Weight:
        """Weight that can still be consumed."""
        return Weight(self.limit[0] - self.time, self.limit[1] - self.size)

    def since(self, before: Weight) -> Weight:
        """Return the weight that was consumed since `consumed` had this value."""
        return Weight(self.time - before[0], self.size - before[1])

    def fits(self, weight: Weight) -> bool:
        """Return whether `weight` could be consumed."""
        return self.time + weight[0] <= self.limit[0] and self.size + weight[1] <= self.limit[1]

    def consume(self, weight: Weight) -> bool:
        """Consume `weight` if it fits whole and return whether it did."""
        time, size = self.time + weight[0], self.size + weight[1]
        if time > self.limit[0] or size > self.limit[1]:
            return False
        self.time, self.size = time, size
        return True

    def charge(self, weight: Weight) -> None:
        """Consume `weight`, even beyond the limit."""
        self.time += weight[0]
        self.size += weight[1]

    def refund(self, weight: Weight) -> None:
        """Return consumed weight."""
        self.time -= weight[0]
        self.size -= weight[1]

    def covering(self, weights: Sequence[Weight], each: Weight = ZERO) -> int:
        """Return how many of these weights, from the first on, could be consumed, each with another one on top."""
        left, count = self.left, len(weights)
        if not count or min(left) < 0:
            return 0
        if weights.count(weights[0]) < count:
            rows = ([weight[part] + each[part] for weight in weights] for part in (0, 1))
            return min(bisect_right(list(accumulate(row)), part) for row, part in zip(rows, left))
        costs = weights[0][0] + each[0], weights[0][1] + each[1]
        return min([count, *(part // cost for part, cost in zip(left, costs) if cost)])


@dataclass(frozen=True)
class Costs:
    """Costs of the steps of servicing. A step is paid before it is taken."""

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

    @cached_property
    def visit(self) -> Weight:
        """Cost of looking at a queue, before any page of it."""
        return self.service_queue_base.plus(self.ready_ring_unknit)

    @cached_property
    def page(self) -> Weight:
        """Cost of opening a page. The larger of two, because the page's completion is not known yet."""
        return self.service_page_base_completion.at_least(self.service_page_base_no_completion)

    @cached_property
    def execution(self) -> Weight:
        """Largest cost of the bookkeeping for one message executed by hand."""
        return self.execute_overweight_page_updated.at_least(self.execute_overweight_page_removed)

    @cached_property
    def overhead(self) -> Weight:
        """Cost of servicing a single message, without the message."""
        return self.bump_service_head.plus(self.visit).plus(self.page).plus(self.service_page_item)

    def to_json(self) -> dict[str, list[int]]:
        """Return the costs that are not zero, as JSON."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: list(cost) for name, cost in pairs if cost != ZERO}


def max_message_weight(limit: Weight, costs: Costs) -> Weight | None:
    """Return the heaviest message that a block of this limit takes, or None if it takes none."""
    return limit.minus(costs.overhead)


#: Unit of `per_byte`: thousandths, so that a byte may cost less than a millisecond in whole numbers.
PER = 1000


@dataclass(frozen=True)
class LinearWeigher:
    """A constant plus an amount per byte (`per_byte`, in thousandths of a unit)."""

    base: Weight = Weight(1, 0)
    per_byte: Weight = Weight(0, PER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", Weight.of(self.base))
        object.__setattr__(self, "per_byte", Weight.of(self.per_byte))

    def weigh(self, length: int, beside: int = 0) -> Weight:
        """Return the weight of a message of this length; parts are rounded up.

        :param beside: bytes beside its payload, which count in the size part only.
        """
        return Weight(
            min(self.base[0] - (-self.per_byte[0] * length // PER), LARGEST),
            min(self.base[1] - (-self.per_byte[1] * (length + beside) // PER), LARGEST),
        )

    def to_json(self) -> dict[str, list[int]]:
        """Return the weigher as it is stored with a ring."""
        return {"base": list(self.base), "per_byte": list(self.per_byte)}

    @classmethod
    def from_json(cls, value: object) -> LinearWeigher:
        """Return the weigher that `to_json` wrote."""
        if not isinstance(value, dict) or not set(value) <= {"base", "per_byte"}:
            raise ConfigRefused(f"invalid weigher {value!r:.80}: expected a mapping with base and per_byte")
        return cls(**value)


@dataclass(frozen=True)
class Weighed:
    """A weight, and an id for the message other than the hash of its bytes."""

    weight: Weight
    id: bytes | None = None


#: The weigher of a plan's caller: takes all payloads of one origin, returns one answer each.
WeighPayloads = Callable[[str, Sequence[bytes]], Sequence[Weight | Weighed]]
