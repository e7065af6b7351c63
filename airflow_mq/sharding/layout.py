"""Layouts: named shards with weights, and the shard that owns an origin.

Rendezvous hashing: each shard enters one number per unit of its weight, a hash of its name, the unit and the origin.
The largest number wins. A new unit can only win origins for its own shard, so a larger weight or a new shard takes
origins from the others and moves none between them. The numbers are whole, so every process and machine agrees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from ..core.errors import ConfigRefused, StoreCorrupt

#: Largest weight of a shard, and largest number of shards. An origin costs one hash per unit of weight, once.
MOST_WEIGHT, MOST_SHARDS = 64, 256
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")


def owner_of(origin: str, shards: Mapping[str, int]) -> str:
    """Return the shard that rendezvous hashing gives an origin."""
    return max((_best(name, weight, origin), name) for name, weight in shards.items() if weight)[1]


def _best(name: str, weight: int, origin: str) -> bytes:
    return max(blake2b(f"{name}\0{unit}\0{origin}".encode(), digest_size=8).digest() for unit in range(weight))


@dataclass(frozen=True)
class Layout:
    """Shards with their weights, and the former layouts whose origins may not have moved yet.

    A shard of weight 0 gets no new origins, and drains.
    """

    version: int
    shards: Mapping[str, int]
    former: tuple[Mapping[str, int], ...] = field(default=())

    def owner(self, origin: str) -> str:
        """Return the shard that gets the origin once its former shard has drained."""
        return owner_of(origin, self.shards)

    def former_owners(self, origin: str) -> list[str]:
        """Return the other shards that may still have pinned the origin."""
        owners = dict.fromkeys(owner_of(origin, shards) for shards in self.former)
        owners.pop(self.owner(origin), None)
        return list(owners)

    def by_former_owner(self, origins: Iterable[str]) -> dict[str, list[str]]:
        """Return the shards that may still have pinned some of these origins, with those origins."""
        found: dict[str, list[str]] = {}
        for origin in origins:
            for shard in self.former_owners(origin):
                found.setdefault(shard, []).append(origin)
        return found

    def to_json(self) -> str:
        """Return the layout as the stores keep it."""
        plain = {"version": self.version, "shards": dict(self.shards), "former": [dict(each) for each in self.former]}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Return a stored layout."""
        try:
            plain = json.loads(text)
            former = tuple(check_shards(each) for each in plain["former"])
            return cls(int(plain["version"]), check_shards(plain["shards"]), former)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(f"the stored layout of shards cannot be read ({type(error).__name__})") from None


def check_shards(shards: Mapping[str, int]) -> dict[str, int]:
    """Return names and weights of shards by name, or raise `ConfigRefused`."""
    for name, weight in shards.items():
        if not _NAME.fullmatch(str(name)):
            raise ConfigRefused(
                f"invalid name of a shard {name!r:.80}: expected letters, digits, _, . and -, at most 63"
            )
        if type(weight) is not int or not 0 <= weight <= MOST_WEIGHT:
            raise ConfigRefused(f"invalid weight of shard {name!r}: expected a whole number from 0 to {MOST_WEIGHT}")
    if not any(shards.values()) or len(shards) > MOST_SHARDS:
        raise ConfigRefused(f"invalid shards: expected 1 to {MOST_SHARDS}, at least one of them with a weight above 0")
    return dict(sorted(shards.items()))
