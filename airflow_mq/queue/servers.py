"""Servers of a ring: the DAGs and programs that service it, as the ledger and the blocks record them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..core.config import RingConfig
from ..core.taking import OriginPatterns
from ..core.weight import Weight, max_message_weight
from ..store import codec
from ..store.unit import Unit
from .values import moment

#: How many of the latest blocks, and of the latest pages of the ledger, are looked through for servers.
LATEST_BLOCKS, LATEST_PAGES = 5_000, 200
MOST_NAME = 300


@dataclass(frozen=True)
class Server:
    """A DAG or a program that services a ring, with the limit of its latest block."""

    #: `DAG 'orders', task 'block.plan'`, or the user and host of a program.
    name: str
    is_dag: bool
    #: What a block may cost; none, if the server leaves that to the ring.
    limit: Weight | None
    #: Which origins it services; none, if it services all.
    patterns: OriginPatterns | None
    #: The latest block that it planned, or call that it made, and when.
    block: int
    at: datetime
    #: What its high messages owe to regular ones, in parts of a block.
    debt: int = 0

    def takes(self, origin: str) -> bool:
        """Return whether its blocks service this origin."""
        return self.patterns is None or self.patterns.takes(origin)

    def limit_in(self, config: RingConfig) -> Weight | None:
        """Return what its blocks may cost now; nothing, where neither it nor the ring has a limit."""
        return self.limit if self.limit is not None else config.service_weight

    def room_in(self, config: RingConfig) -> Weight | None:
        """Return the weight of the heaviest message that its blocks can carry; nothing, where there is no limit."""
        limit = self.limit_in(config)
        return None if limit is None else max_message_weight(limit, config.costs) or Weight(0, 0)


def server_record(
    name: str, limit: Weight | None, patterns: OriginPatterns | None = None, *, is_dag: bool
) -> dict[str, Any]:
    """Return what a block records of its server, as JSON has it."""
    origins = {} if patterns is None else {"origins": list(patterns.patterns)}
    return {
        "name": name[:MOST_NAME],
        "dag": is_dag,
        "limit": None if limit is None else list(Weight.of(limit)),
        **origins,
    }


def servers_of(unit: Unit, ring: int) -> list[Server]:
    """Return the servers of a ring: DAGs first, and of these the one with the latest block."""
    found: dict[str, Server] = {}
    for one in _recorded(unit, ring):
        if one.name not in found or found[one.name].block < one.block:
            found[one.name] = one
    return sorted(found.values(), key=lambda one: (not one.is_dag, -one.block))


def _recorded(unit: Unit, ring: int) -> Iterator[Server]:
    for block, at, said in unit.blocks.servers(ring, LATEST_BLOCKS):
        yield server_of(codec.read_json(said), block, at)
    for block, at, data in unit.ledger.heads(ring, LATEST_PAGES):
        said = codec.unpack_ledger_head(bytes(data)).get("server")
        if said is not None:
            yield server_of(said, block, at)


@codec.reading("who serviced a ring")
def server_of(said: Any, block: int, at: int) -> Server:
    """Return the server that a block or a page of the ledger records."""
    limit = said["limit"]
    return Server(
        str(said["name"]), bool(said["dag"]), None if limit is None else Weight(*limit),
        OriginPatterns.of(said.get("origins")), block, moment(at), int(said.get("debt", 0)),
    )  # fmt: skip
