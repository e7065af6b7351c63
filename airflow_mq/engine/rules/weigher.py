"""Weighers: predictions of a message's weight before it is processed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import ConfigRefused
from .weight import LARGEST, Weight

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

    def weigh(self, length: int) -> Weight:
        """Return the weight of a message of this length; parts are rounded up."""
        return Weight(
            min(self.base[0] - (-self.per_byte[0] * length // PER), LARGEST),
            min(self.base[1] - (-self.per_byte[1] * length // PER), LARGEST),
        )

    def weigh_with(self, length: int, headers: int) -> Weight:
        """Return the weight of a message with headers of this many bytes, which count in the size part only."""
        return Weight(self.weigh(length)[0], self.weigh(length + headers)[1])

    def to_json(self) -> dict[str, list[int]]:
        """Return the weigher as it is stored with a ring."""
        return {"base": list(self.base), "per_byte": list(self.per_byte)}

    @classmethod
    def from_json(cls, value: object) -> LinearWeigher:
        """Return the weigher that `to_json` wrote."""
        if not isinstance(value, dict) or not set(value) <= {"base", "per_byte"}:
            raise ConfigRefused(f"invalid weigher {value!r:.80}: expected a mapping with base and per_byte")
        return cls(**{name: Weight.of(part) for name, part in value.items()})


@dataclass(frozen=True)
class Weighed:
    """A weight, and an id for the message other than the hash of its bytes."""

    weight: Weight
    id: bytes | None = None


#: A weigher of a processor: takes all payloads of one origin, returns one answer each.
WeighPayloads = Callable[[str, Sequence[bytes]], Sequence[Weight | Weighed]]
