"""Bounds of message weights, and the reason why a message exceeds them."""

from __future__ import annotations

from typing import NamedTuple

from .config import RingConfig
from .weight import UNLIMITED, ZERO, Weight, max_message_weight

#: Reasons why a message is set aside. It weighs more than a full block leaves for one, more than its origin's *most*,
#: or more than the fraction of a block that the ring allows; it has more bytes than the ring allows; its attempts are
#: exhausted; or its queue was swept.
OVERWEIGHT, MOST, FRACTION, SIZE, ATTEMPTS, SWEPT = "overweight", "most", "fraction", "size", "attempts", "swept"
REASONS = (OVERWEIGHT, MOST, FRACTION, SIZE, ATTEMPTS, SWEPT)
_WHOLE = 1_000_000_000


class Exceeded(NamedTuple):
    """The reason and the limit that a message exceeds. A limit in bytes has a time of zero."""

    reason: str
    limit: Weight


class Decision(NamedTuple):
    """End of a message that no processor gets: the limit that it exceeds, or None for a message that expired."""

    exceeded: Exceeded | None
    weight: Weight
    id: bytes | None = None


class Bounds(NamedTuple):
    """Largest weight of a message of one queue."""

    #: Weight that a full block leaves for a message.
    full: Weight = UNLIMITED
    #: The origin's *most*.
    most: Weight | None = None
    #: Fraction of a full block.
    fraction: Weight | None = None
    #: Limit in bytes.
    size: int | None = None

    @property
    def bar(self) -> Weight | None:
        """Weight above which a message is set aside although it would fit: the smaller of most and fraction."""
        if self.most is None or self.fraction is None:
            return self.most or self.fraction
        return Weight(*map(min, self.most, self.fraction))

    @property
    def limit(self) -> Weight:
        """Smallest of all limits."""
        bar = self.bar
        return self.full if bar is None else Weight(*map(min, self.full, bar))

    def of(self, most: Weight | None) -> Bounds:
        """Return the bounds for an origin with its own *most*."""
        return self if most is None else self._replace(most=most)

    def exceeded(self, weight: Weight, length: int = 0, *, fits_now: bool = False) -> Exceeded | None:
        """Return the limit that a message exceeds, or None.

        :param fits_now: whether it fits the rest of this call, whose limit may be larger than a full block.
        """
        if self.size is not None and length > self.size:
            return Exceeded(SIZE, Weight(0, self.size))
        if weight.exceeds(self.full) and (not fits_now or (self.most is not None and weight.exceeds(self.most))):
            return Exceeded(OVERWEIGHT, Weight(*map(min, self.full, self.most or self.full)))
        if self.most is not None and weight.exceeds(self.most):
            return Exceeded(MOST, Weight(*map(min, self.full, self.most)))
        if self.fraction is not None and weight.exceeds(self.fraction):
            return Exceeded(FRACTION, self.fraction)
        return None


def bounds_of(config: RingConfig, limit: Weight) -> Bounds:
    """Return the bounds of a ring for a block of this limit.

    The setting `set_aside_above` chooses whether the ring's service weight counts as a full block, or this limit.
    """
    if not config.judges_by_block:
        limit = config.service_weight or ZERO
    full = max_message_weight(limit, config.costs) or ZERO
    if config.most_of_limit is None:
        return Bounds(full, size=config.max_message_size)
    share = round(config.most_of_limit * _WHOLE)
    fraction = Weight(*(part * share // _WHOLE for part in full))
    return Bounds(full, None, fraction, config.max_message_size)


def in_words(reason: str, weight: Weight | None, limit: Weight | None, size: int) -> str:
    """Return why a message was set aside, as a clause of a sentence."""
    if reason == SIZE and limit is not None:
        return f"it has {size:,} bytes, more than the {limit[1]:,} that this ring allows"
    whose = {
        OVERWEIGHT: "that a block can carry",
        MOST: "that its origin may have of a block",
        FRACTION: "that this ring allows for one message",
    }.get(reason)
    if whose and weight is not None:
        return f"it weighs {weight}, more than the {limit} {whose}"
    return "its queue was swept" if reason == SWEPT else "it was tried without an outcome, and is not tried again"
