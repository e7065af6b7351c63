"""How much is measured: in full, or quickly to see that it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Counts of messages, and how often each figure is taken."""

    name: str
    #: Bulk in and out.
    bulk: int
    rounds: int
    #: Messages that a slow peer gets at least.
    least: int
    #: Single sends: so many a turn, so many turns of each contender.
    turn: int
    turns: int
    #: Write-ahead log: messages in large calls, in single sends, and how often.
    life: int
    life_single: int
    lives: int
    #: A block, and what waits behind it.
    block: int
    few: int
    many: int
    crowd: int
    blocks: int
    #: Turns beside a reader that holds a transaction open.
    held: int
    #: Origins that are skipped.
    passed: int
    #: Numbers of queues of the rings that are inspected.
    inspected: tuple[int, ...]
    #: Messages that are planned at once.
    planned: int
    #: A steady load: messages a second, for so many seconds, so many times.
    load: int
    load_seconds: int
    loads: int
    #: Messages of one origin before one of a quiet origin: for ours, and for peers, whose figure is extrapolated.
    flood: int
    flood_peers: int
    #: Blocks by each way to store.
    storage: int
    #: Messages whose microseconds are divided: single sends, and all others.
    profiled_single: int
    profiled: int
    #: Minutes of mixed load of each contender, and messages a second.
    minutes: float
    rate: int


FULL = Sizes(
    name="full",
    bulk=100_000,
    rounds=7,
    least=3_000,
    turn=500,
    turns=21,
    life=200_000,
    life_single=20_000,
    lives=3,
    block=10_000,
    few=10_000,
    many=5_000_000,
    crowd=100_000,
    blocks=7,
    held=48,
    passed=10_000,
    inspected=(100_000, 1_000_000),
    planned=100_000,
    load=500,
    load_seconds=20,
    loads=3,
    flood=1_000_000,
    flood_peers=100_000,
    storage=30,
    profiled_single=20_000,
    profiled=200_000,
    minutes=10,
    rate=5_000,
)
QUICK = Sizes(
    name="quick",
    bulk=10_000,
    rounds=2,
    least=1_000,
    turn=100,
    turns=5,
    life=20_000,
    life_single=1_000,
    lives=1,
    block=2_000,
    few=2_000,
    many=100_000,
    crowd=2_000,
    blocks=3,
    held=4,
    passed=500,
    inspected=(1_000, 5_000),
    planned=10_000,
    load=200,
    load_seconds=3,
    loads=1,
    flood=50_000,
    flood_peers=5_000,
    storage=5,
    profiled_single=500,
    profiled=20_000,
    minutes=0.5,
    rate=1_000,
)
SIZES = {sizes.name: sizes for sizes in (FULL, QUICK)}
