"""Memory of a service and of a block: whether it grows with the bytes that wait."""

from __future__ import annotations

from collections.abc import Sequence

from lab.benchmarks.contenders import OURS, Contender, Running
from lab.benchmarks.drivers.common import ORIGINS, SIZE
from lab.benchmarks.lab import Lab
from lab.benchmarks.rows import Row, ratio
from lab.benchmarks.stats import Sample, pick, values

#: How much more memory may be used where ten times as many bytes wait. The fewer bytes are those that a service holds.
BOUND = 1.2
#: Bytes of each message of a queue that goes back: few, and many.
LARGE = (6_000, 60_000)
#: What the driver does, and its name in the report.
WAYS = {
    "batch": "a service of all messages by a batch processor",
    "callable": "a service of all messages by a callable",
    "one block": "a block of {block:,} messages",
    "returned": "a service in which every queue goes back",
}


def memory(lab: Lab, contenders: list[Contender]) -> None:
    """`memory`: MiB of the client's process at most, from its start; a new process each time."""
    if OURS not in contenders:
        return
    for turn in range(lab.sizes.lives):
        lab.say(f"memory, round {turn + 1} of {lab.sizes.lives}")
        for way in WAYS:
            for many in (False, True):
                prepared, waiting = _waiting(lab, way, many=many)
                with lab.trying("memory", OURS, way), lab.clone(prepared, OURS) as (_, driver):
                    told = driver("out_at", mode=way)
                    facts = {"block": lab.sizes.block, "many": many, "waiting": waiting}
                    lab.note("memory", "ours", way, round=turn, **facts, **told)


def _waiting(lab: Lab, way: str, *, many: bool) -> tuple[str, int]:
    """Return a prepared database, and how many bytes wait there."""
    queues, size = lab.sizes.many // 400, LARGE[many]
    each = lab.sizes.many // (1 if many else 10) // ORIGINS

    def large(uri: str) -> None:
        with Running(OURS, uri) as driver:
            driver("setup")
            driver("fill_large", queues=queues, size=size)

    def small(uri: str) -> None:
        with Running(OURS, uri) as driver:
            driver("setup", block=lab.sizes.block)
            driver("fill", each=each, call=1000)

    if way == "returned":
        return lab.prepared(f"ours, {queues:,} messages of {size:,} bytes", large), queues * size
    return lab.prepared(f"ours, {each * ORIGINS:,} messages", small), each * ORIGINS * SIZE


def rows(samples: Sequence[Sample]) -> list[Row]:
    found = []
    for way, name in WAYS.items():
        few, many = (pick(samples, "memory", "ours", variant=way, many=many) for many in (False, True))
        if not (few and many):
            continue
        small, large = values(few, "memory"), values(many, "memory")
        detail = f"{large.median:,.0f} MiB of the client's process, and {small.median:,.0f}" if small and large else ""
        sizes = [f"{taken[0]['waiting'] / 1e6:,.0f} MB" for taken in (many, few)]
        what = f"{name.format(block=many[0]['block'])}, {sizes[0]} waiting against {sizes[1]}"
        found.append(Row("memory", what, ratio(large, small), BOUND, False, detail))
    return found
