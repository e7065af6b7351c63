"""Size of a fleet: servers and blocks for a load, from the measured CPU time of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

from ..core.errors import InvalidInput


@dataclass(frozen=True)
class Load:
    """Messages per second that are sent and processed, their origins, and the messages of a block."""

    messages_per_second: int
    origins: int = 1_000
    block_messages: int = 100_000
    #: Part of the messages that are sent one by one, in percent; the others are sent in calls of many.
    single_percent: int = 0


@dataclass(frozen=True)
class Costs:
    """CPU time of a message in microseconds, without the processor's own work.

    The defaults are medians of the benchmark's measure `sharded` on one server: messages of 128 bytes, sent in calls of
    1,000 to 100 origins, or one by one; serviced by a batch processor; PostgreSQL 18, two cores of an AMD EPYC.
    """

    server_in: float = 1.9
    server_out: float = 2.2
    client_in: float = 1.4
    client_out: float = 4.6
    #: The same for a message that is sent alone, in a transaction of its own.
    server_single: float = 190.0
    client_single: float = 95.0
    source: str = "measure `sharded` of the benchmark, one server, 128 bytes; --report takes your own figures"

    @classmethod
    def of_report(cls, raw: Mapping[str, Any], source: str) -> Costs:
        """Return the costs that a benchmark report measured on one server."""
        samples = [each for each in raw.get("samples", ()) if each.get("measure") == "sharded" and each["servers"] == 1]
        if {"in", "single in", "out"} - {each["variant"] for each in samples}:
            raise InvalidInput(
                f"no samples of the measure 'sharded' in {source}: run `python -m tests.benchmarks --only sharded`"
            )

        def micros(way: str, who: str) -> float:
            return float(median(each[who] / each["count"] * 1e6 for each in samples if each["variant"] == way))

        return cls(
            server_in=micros("in", "server_cpu"),
            server_out=micros("out", "server_cpu"),
            client_in=micros("in", "client_cpu"),
            client_out=micros("out", "client_cpu"),
            server_single=micros("single in", "server_cpu"),
            client_single=micros("single in", "client_cpu"),
            source=source,
        )

    def sent(self, single_percent: int) -> tuple[float, float]:
        """Return the mean cost of sending a message, of the server and of the client."""
        part = single_percent / 100
        return (
            part * self.server_single + (1 - part) * self.server_in,
            part * self.client_single + (1 - part) * self.client_in,
        )


@dataclass(frozen=True)
class Fleet:
    """A fleet that carries a load."""

    servers: int
    #: Part of the cores of each server that the load uses.
    server_use: float
    origins_per_server: int
    #: Blocks per minute of each server.
    blocks_per_minute: float
    #: Cores of senders, and of tasks that process, all together.
    sender_cores: float
    worker_cores: float
    costs: Costs

    def shown(self) -> dict[str, str]:
        """Return the fleet as text."""
        costs = self.costs
        return {
            "database servers": f"{self.servers:,}, each with {self.server_use:.0%} of its cores in use",
            "origins per server": f"{self.origins_per_server:,}",
            "blocks per server": f"{self.blocks_per_minute:,.1f} per minute",
            "cores of senders": f"{self.sender_cores:.2f} in all",
            "cores of tasks": f"{self.worker_cores:.2f} in all, and what the processors need",
            "cost of a message": f"server {costs.server_in:.1f} µs in, {costs.server_out:.1f} µs out; "
            f"clients {costs.client_in:.1f} µs in, {costs.client_out:.1f} µs out",
            "sent one by one": f"server {costs.server_single:.0f} µs, clients {costs.client_single:.0f} µs",
            "measured in": costs.source,
        }


def fleet_of(load: Load, costs: Costs, cores: int = 4, percent: int = 50) -> Fleet:
    """Return the smallest fleet whose servers use at most `percent` of their cores."""
    if not 1 <= percent <= 100:
        raise InvalidInput(f"invalid part of the cores ({percent} %): expected 1 to 100")
    if not 0 <= load.single_percent <= 100:
        raise InvalidInput(f"invalid part of single sends ({load.single_percent} %): expected 0 to 100")
    server_in, client_in = costs.sent(load.single_percent)
    needed = load.messages_per_second * (server_in + costs.server_out) / 1e6
    servers = max(ceil(needed / (cores * percent / 100)), 1)
    return Fleet(
        servers,
        needed / (servers * cores),
        ceil(load.origins / servers),
        load.messages_per_second * 60 / servers / load.block_messages,
        load.messages_per_second * client_in / 1e6,
        load.messages_per_second * costs.client_out / 1e6,
        costs,
    )
