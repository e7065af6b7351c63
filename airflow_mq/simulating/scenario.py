"""Scenarios: arrivals, policies, and sources that draw arrivals from a seed."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.book import Standing
from ..core.config import RingConfig
from ..core.errors import InvalidInput
from ..core.message import check_number, check_origin, check_text
from ..core.priority import REGULAR, check_priority
from ..core.weight import Weight

#: Limits of one simulation: messages and blocks.
MOST_MESSAGES, MOST_BLOCKS = 2_000_000, 100_000


@dataclass(frozen=True)
class Arrival:
    """Equal messages that arrive before a block is planned."""

    #: Number of the block, from 1.
    block: int
    origin: str
    count: int = 1
    #: Size of each in bytes.
    size: int = 100
    #: Weight of each; None: by the ring's weigher.
    weight: Weight | None = None
    priority: str = REGULAR

    def __post_init__(self) -> None:
        check_origin(self.origin)
        check_priority(self.priority)
        for what, number in (("block", self.block), ("count", self.count), ("size", self.size)):
            if not check_number(number, f"the {what} of an arrival"):
                raise InvalidInput(f"invalid {what} of an arrival 0: expected at least 1")
        if self.weight is not None:
            object.__setattr__(self, "weight", Weight.of(self.weight))


@dataclass(frozen=True)
class Policy:
    """Rules for filling blocks; missing settings are those of the scenario."""

    name: str
    order: str | None = None
    limit: Weight | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text(self.name, "the name of a policy", 200)
        if self.limit is not None:
            object.__setattr__(self, "limit", Weight.of(self.limit))

    def config(self, ring: RingConfig) -> RingConfig:
        """Return the ring's configuration under this policy."""
        settings = {**ring.to_json(), **self.settings}
        if self.order is not None:
            settings["order"] = self.order
        if self.limit is not None:
            settings["service_weight"] = self.limit
        return RingConfig.from_json(settings).check()


@dataclass(frozen=True)
class Scenario:
    """Arrivals, the ring that they arrive in, and the number of blocks."""

    arrivals: Sequence[Arrival]
    blocks: int = 0
    ring: RingConfig = field(default_factory=RingConfig)
    standings: Mapping[str, Standing] = field(default_factory=dict)
    policies: Sequence[Policy] = ()
    seed: int = 0
    name: str = "scenario"

    def __post_init__(self) -> None:
        last = max((arrival.block for arrival in self.arrivals), default=1)
        object.__setattr__(self, "blocks", check_number(self.blocks, "a number of blocks") or last)
        if self.blocks > MOST_BLOCKS:
            raise InvalidInput(f"too many blocks ({self.blocks:,}): a simulation runs at most {MOST_BLOCKS:,}")
        if self.messages > MOST_MESSAGES:
            raise InvalidInput(f"too many messages ({self.messages:,}): a simulation takes at most {MOST_MESSAGES:,}")

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(arrival.count for arrival in self.arrivals)

    def block_seed(self, block: int) -> bytes:
        """Return the seed of a block, for a ring that shuffles."""
        return hashlib.blake2b(f"{self.seed} {block}".encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Source:
    """An origin that sends by a rule."""

    origin: str
    #: Messages per block: a mean with random counts from the seed, or a steady rate.
    rate: float = 0.0
    steady: bool = False
    #: Size of a burst, its first block, and the number of blocks between bursts.
    burst: int = 0
    burst_first: int = 1
    burst_every: int = 0
    #: First and last block in which it sends.
    first: int = 1
    last: int | None = None
    #: Possible sizes and weights; each message draws one of them.
    sizes: Sequence[int] = (100,)
    weights: Sequence[Weight] = ()
    priority: str = REGULAR

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1e6 or isinstance(self.rate, bool):
            raise InvalidInput(f"invalid rate {self.rate!r}: expected 0 to 1,000,000 messages per block")
        if not self.sizes:
            raise InvalidInput("no sizes: expected at least one")

    def arrivals(self, blocks: int, seed: int) -> Iterator[Arrival]:
        """Yield its arrivals; equal seeds give equal arrivals."""
        dice = random.Random(f"{seed} {self.origin}")  # noqa: S311 - nothing here is a secret
        for block in range(self.first, min(self.last or blocks, blocks) + 1):
            yield from self._of_a_block(block, dice)

    def _of_a_block(self, block: int, dice: random.Random) -> Iterator[Arrival]:
        passed = block - self.burst_first
        bursts = passed >= 0 and (passed % self.burst_every == 0 if self.burst_every else passed == 0)
        count = self._many(block - self.first + 1, dice) + (self.burst if bursts else 0)
        if len(self.sizes) == 1 and len(self.weights) <= 1:
            if count:
                weight = self.weights[0] if self.weights else None
                yield Arrival(block, self.origin, count, self.sizes[0], weight, self.priority)
            return
        for _ in range(count):
            weight = dice.choice(self.weights) if self.weights else None
            yield Arrival(block, self.origin, 1, dice.choice(self.sizes), weight, self.priority)

    def _many(self, number: int, dice: random.Random) -> int:
        if self.steady:
            return math.floor(number * self.rate + 1e-9) - math.floor((number - 1) * self.rate + 1e-9)
        return _poisson(self.rate, dice)


def _poisson(rate: float, dice: random.Random) -> int:
    """Return a random count with this mean, by a Poisson distribution."""
    count = 0
    while rate > 0:
        # A long span is divided into short ones, which add up.
        span, product = min(rate, 30.0), dice.random()
        while product > math.exp(-span):
            count += 1
            product *= dice.random()
        rate -= span
    return count
