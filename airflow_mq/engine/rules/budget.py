"""Budgets over time: rates, and the buckets that pay for messages.

A bucket fills at a rate, up to its burst, and each message takes its planned weight. A message starts if each limited
part of the bucket covers its weight or is full: then the balance may become negative, and nothing starts until it is
paid back. So in any time `t` a bucket is charged at most `rate · t + burst + one message`, and what blocks used beyond
their plans.

High messages come first, and regular ones keep their share of a bucket as they do of a block: while regular ones wait
for it, high ones *owe* them their share of what high ones took.

Balances are whole numbers of *grains*: a unit of weight times the microseconds of a day. Each rate is a whole number of
grains per microsecond, so that refills lose nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from .characters import shown
from .config import BLOCK_PARTS
from .errors import ConfigRefused, InvalidInput
from .units import byte_count, milliseconds, size_text, time_text
from .weight import LARGEST, ZERO, Weight

#: Grains of a unit of weight: the microseconds of a day.
GRAINS = 86_400_000_000
HOUR = GRAINS // 24
#: The latest time for which a queue waits: the end of the year 9999.
FAR = 253_402_300_799_000_000
#: Seconds of the periods of a rate. Each divides a day.
PERIODS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_READ_PERIODS = {**PERIODS, "s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400}
#: The settings of a budget: the name of each, with its part of a weight.
RATES = {"rate": 0, "rate_bytes": 1}
BURSTS = {"burst": 0, "burst_bytes": 1}
_READ = milliseconds, byte_count
_EXAMPLE = "2h/day", "50GiB/day"


class Rate(NamedTuple):
    """An amount of weight per period."""

    amount: int
    seconds: int
    #: The part of a weight: 0 for time, 1 for size.
    part: int = 0

    @property
    def per_day(self) -> int:
        """Units of weight per day, which are grains per microsecond."""
        return self.amount * (PERIODS["day"] // self.seconds)

    def __str__(self) -> str:
        """Return the rate as it is typed: `2h/day`."""
        period = next(period for period, seconds in PERIODS.items() if seconds == self.seconds)
        return f"{amount_text(self.part, self.amount)}/{period}"


def rate_of(name: str, value: object) -> Rate:
    """Return a caller's rate, which may be a text such as `2h/day`."""
    part = RATES[name]
    if isinstance(value, str):
        text, slash, period = value.rpartition("/")
        seconds = _READ_PERIODS.get(period.strip().lower())
        if not slash or seconds is None:
            raise ConfigRefused(
                f"invalid {name} {shown(value, 40, repr)}: expected an amount per second, minute, hour or day, such "
                f"as {_EXAMPLE[part]}"
            )
        value = Rate(_amount(name, part, text), seconds, part)
    if not isinstance(value, Rate) or value.part != part or value.seconds not in PERIODS.values():
        raise ConfigRefused(f"invalid {name} {shown(value, 40, repr)}: expected a text such as {_EXAMPLE[part]}")
    return value._replace(amount=_checked(name, value.amount, "to stop a queue, pause it"))


def burst_of(name: str, value: object) -> int:
    """Return a caller's burst: milliseconds or bytes, or a text such as `30m` or `5GiB`."""
    part = BURSTS[name]
    if isinstance(value, str) and "/" in value:
        raise ConfigRefused(
            f"invalid {name} {shown(value, 40, repr)}: a burst is an amount, such as {('30m', '5GiB')[part]}; "
            "a rate has a period"
        )
    found = _amount(name, part, value) if isinstance(value, str) or hasattr(value, "total_seconds") else value
    return _checked(name, found, "without a burst, one hour's rate applies")


def _amount(name: str, part: int, text: Any) -> Any:
    try:
        return _READ[part](text)
    except InvalidInput as error:
        other = name.removesuffix("_bytes") if part else f"{name}_bytes"
        try:
            _READ[1 - part](text)
        except InvalidInput:
            raise ConfigRefused(f"invalid {name}: {error}") from None
        raise ConfigRefused(
            f"invalid {name} {shown(text, 40, repr)}: expected {('a time', 'a size')[part]}; "
            f"{('a time', 'a size')[1 - part]} is set by {other}"
        ) from None


def _checked(name: str, amount: object, instead: str) -> int:
    if type(amount) is not int or not 1 <= amount <= LARGEST:
        raise ConfigRefused(
            f"invalid {name} {shown(amount, 40, repr)}: expected a whole number from 1 to {LARGEST}; {instead}"
        )
    return amount


def amount_text(part: int, amount: int) -> str:
    """Return an amount of a part of a weight as it is typed: `1.5h`, `5GiB`."""
    return (time_text, size_text)[part](amount).replace(" ", "").replace(",", "")


class Part(NamedTuple):
    """Budget of one part of a weight."""

    #: Grains per microsecond.
    rate: int
    #: Largest balance, in grains.
    burst: int

    @classmethod
    def of(cls, rate: Rate | None, burst: int | None) -> Part | None:
        """Return the budget of a part: by default, it saves up the rate of an hour."""
        if rate is None:
            return None
        return cls(rate.per_day, rate.per_day * HOUR if burst is None else burst * GRAINS)


class Budget(NamedTuple):
    """Budget of an origin or a path; a part that is not set is unlimited."""

    time: Part | None
    size: Part | None

    @staticmethod
    @lru_cache(4_096)
    def of(rate: Rate | None, rate_bytes: Rate | None, burst: int | None, burst_bytes: int | None) -> Budget | None:
        """Return the budget of these settings, or None if no rate is set."""
        time, size = Part.of(rate, burst), Part.of(rate_bytes, burst_bytes)
        return Budget(time, size) if time or size else None


class Balance(NamedTuple):
    """Balance of a bucket, as it is stored."""

    #: Grains of each part; None for a part that was unlimited.
    left: tuple[int | None, int | None] = (None, None)
    #: Until when the bucket was refilled, by the store's clock.
    refilled_to: int = 0
    #: The weight of the message that it cannot cover, and when it will.
    needs: Weight | None = None
    wake_at: int = 0
    #: Since when it is exhausted: until it is full again; 0 if it is not.
    exhausted_at: int = 0
    #: Grains of each part that high messages owe to regular ones.
    owed: tuple[int, int] = (0, 0)


class Bucket:
    """A budget and its balance, which is full at first."""

    def __init__(self, path: str, budget: Budget, now: int, stored: Balance | None = None) -> None:
        """:param now: the store's clock, in microseconds."""
        self.path, self.budget = path, budget
        stored = Balance(refilled_to=now) if stored is None else stored
        #: Grains of each part; an unlimited one has none.
        self.left = [0 if part is None else part.burst if left is None else left
                     for part, left in zip(budget, stored.left)]  # fmt: skip
        self.refilled_to, self.needs, self.wake_at = stored.refilled_to, stored.needs, stored.wake_at
        self.exhausted_at = stored.exhausted_at
        self.owed = list(stored.owed)
        #: What of each part this walk keeps for regular messages.
        self.kept: list[int] = []
        #: Parts for which regular messages wait in this walk.
        self.wanted: set[int] = set()
        self.refill(now)
        #: What each part held before this walk, or before its high messages.
        self.whole = self.left[:]

    @property
    def balance(self) -> Balance:
        """Return the balance, as it is stored."""
        left = (None if part is None else grains for part, grains in zip(self.budget, self.left))
        owed = self.owed[0], self.owed[1]
        return Balance((next(left), next(left)), self.refilled_to, self.needs, self.wake_at, self.exhausted_at, owed)

    def refill(self, now: int) -> None:
        """Add what the rate gave until now. A clock that was set back gives nothing until it comes up again."""
        elapsed = max(now - self.refilled_to, 0)
        self.refilled_to += elapsed
        for at, part in enumerate(self.budget):
            if part is not None:
                self.left[at] = min(self.left[at] + part.rate * elapsed, part.burst)
        if all(part is None or left == part.burst for part, left in zip(self.budget, self.left)):
            self.exhausted_at = 0

    def covering(self, weights: Sequence[Weight]) -> int:
        """Return how many of these messages, from the first on, may start."""
        count = len(weights)
        for at, part in enumerate(self.budget):
            if part is None or not count:
                continue
            sums = list(accumulate(weight[at] for weight in weights[:count]))
            covered = bisect_right(sums, self.left[at] // GRAINS) if self.left[at] >= 0 else 0
            if covered < count and self.left[at] == part.burst and not (covered and sums[covered - 1]):
                # Nothing was taken of a full part: the next message may overdraw it.
                covered += 1
            count = covered
        return count

    def keep(self, share: int) -> None:
        """Keep a share of each part for regular messages, and what they are owed, until high ones were serviced."""
        if not self.kept:
            self.whole = self.left[:]
            self.kept = [max(left, 0) * share // BLOCK_PARTS + owed for left, owed in zip(self.left, self.owed)]

    def sparing(self, weights: Sequence[Weight]) -> int:
        """Return how many of these high messages, from the first on, may start before regular ones.

        The first one of a walk may take of what is kept, if that is not all.
        """
        count = self.covering(weights)
        for at, part in enumerate(self.budget):
            if part is None or not count:
                continue
            spare = self.left[at] - self.kept[at]
            sums = list(accumulate(weight[at] for weight in weights[:count]))
            fitting = bisect_right(sums, spare // GRAINS) if spare > 0 else 0
            count = max(fitting, int(spare > 0 and self.left == self.whole))
        return count

    def charge(self, weight: Weight) -> None:
        """Take a weight, also of a balance that does not cover it."""
        for at, part in enumerate(self.budget):
            if part is not None:
                self.left[at] -= weight[at] * GRAINS

    def refund(self, planned: Weight, charged: Weight = ZERO) -> None:
        """Give planned weight back that was not charged in the end, up to the burst; an overrun is charged."""
        for at, part in enumerate(self.budget):
            if part is not None:
                self.left[at] = min(self.left[at] + (planned[at] - charged[at]) * GRAINS, part.burst)

    def want(self) -> None:
        """Record for which parts the message waits, a regular one, that the bucket does not cover."""
        needs = self.needs or ZERO
        self.wanted.update(
            at for at, part in enumerate(self.budget) if part and self.left[at] < min(needs[at] * GRAINS, part.burst)
        )

    def owe(self, parts: int) -> None:
        """Add parts of what was taken since the last call, or since `keep`, to what regular messages are owed."""
        taken = [max(before - left, 0) for before, left in zip(self.whole, self.left)]
        self.owed = [max(owed + grains * parts // BLOCK_PARTS, 0) for owed, grains in zip(self.owed, taken)]
        self.whole = self.left[:]

    def covers_at(self, weight: Weight) -> int:
        """Return when the bucket covers a weight if nothing else is charged; a time that has passed if it does now."""
        waits = [0]
        for part, left, needed in zip(self.budget, self.left, weight):
            if part is not None:
                waits.append(-((left - min(needed * GRAINS, part.burst)) // part.rate))
        return min(self.refilled_to + max(waits), FAR)

    def wait_for(self, weight: Weight | None) -> bool:
        """Let all messages of the bucket wait until it covers this one, or None; return whether it became exhausted."""
        self.needs = weight
        self.wake_at = 0 if weight is None or self.covering([weight]) else self.covers_at(weight)
        if not self.wake_at or self.exhausted_at:
            return False
        self.exhausted_at = self.refilled_to
        return True
