"""Targets, and whether they are met: each is computed from raw samples alone."""

from __future__ import annotations

from collections.abc import Sequence

from lab.benchmarks.drivers.common import SIZE
from lab.benchmarks.measures import flood, inspection, latency, memory, profile, spark, storage, sustained
from lab.benchmarks.measures.single import CLIENTS, named
from lab.benchmarks.measures.throughput import CALLS, MODES
from lab.benchmarks.rows import NOT_PEERS, Row, best_peer, ratio
from lab.benchmarks.stats import Figure, Sample, pick, rates, values

#: How often the rate of the best peer a sender has to reach: in bulk, in calls of ten messages, and in single sends.
BULK, TENS, SINGLE = 5, 1.25, 1.1
#: How often the rate of pgmq a way out has to reach, for messages sent in calls of 1, 10 and 1,000.
AGAINST_PGMQ = {"batch": (1.4, 1.9, 2.7), "callable": (1.3, 1.7, 2.3), "block": (1.05, 1.5, 2.1)}


def rows(samples: Sequence[Sample]) -> list[Row]:
    return [
        *_bulk(samples),
        *_tens(samples),
        *_single(samples),
        *_out(samples),
        *_life(samples),
        *_flat(samples),
        *_held(samples),
        *_passed(samples),
        *_planning(samples),
        *inspection.rows(samples),
        *memory.rows(samples),
        *latency.rows(samples),
        *flood.rows(samples),
        *storage.rows(samples),
        *profile.rows(samples),
        *sustained.rows(samples),
        *spark.rows(samples),
    ]


def _bulk(samples: Sequence[Sample]) -> list[Row]:
    best, found = best_peer(samples, "bulk_in"), []
    bare = pick(samples, "bulk_in", "bare", variant="COPY of 1,000")
    for variant in ("calls of 1,000 to one origin", "calls of 1,000 to 100 origins"):
        ours = pick(samples, "bulk_in", "ours", variant=variant)
        if best:
            theirs = pick(samples, "bulk_in", best[0])
            found += _against("bulk in", f"{variant}, against the best peer", ours, theirs, BULK)
        found += _against("bulk in", f"{variant}, against the bare table", ours, bare)
    return found


def _tens(samples: Sequence[Sample]) -> list[Row]:
    best, found = best_peer(samples, "ten_in"), []
    bare = pick(samples, "ten_in", "bare")
    for variant in ("to one origin", "to ten origins"):
        ours = pick(samples, "ten_in", "ours", variant=variant)
        if best:
            theirs = pick(samples, "ten_in", best[0])
            found += _against("calls of 10", f"{variant}, against the best peer's calls of 10", ours, theirs, TENS)
        found += _against("calls of 10", f"{variant}, against COPY of 10", ours, bare)
    return found


def _single(samples: Sequence[Sample]) -> list[Row]:
    found = []
    for clients in CLIENTS:
        others: list[tuple[str, str, float | None]] = [("bare", "the bare table's INSERT", None)]
        if best := best_peer(samples, "single_in", clients=clients):
            others.insert(0, (best[0], "the best peer", SINGLE))
        for other, name, bound in others:
            ours = pick(samples, "single_in", "ours", clients=clients, beside=other)
            theirs = pick(samples, "single_in", other, clients=clients)
            found += _against("single in", f"{named(clients)}, against {name}", ours, theirs, bound)
    return found


def _against(
    group: str, what: str, ours: Sequence[Sample], theirs: Sequence[Sample], bound: float | None = None
) -> list[Row]:
    """A row of rates, and one of messages per second of processor time, of client and server together."""
    peer = theirs[0]["contender"] if theirs else ""
    detail = "" if peer in NOT_PEERS else peer
    found = [Row(group, what, ratio(rates(ours), rates(theirs)), bound, detail=detail)]
    if all("server" in sample and "client" in sample for sample in (*ours, *theirs)):
        found.append(Row(group, f"{what}, per CPU second", ratio(_per_cpu(ours), _per_cpu(theirs)), detail=detail))
    return found


def _per_cpu(samples: Sequence[Sample]) -> Figure | None:
    """Messages per second of processor time, from the sums: the system counts the server's time in hundredths."""
    used = sum(sample["client"] + sample["server"] for sample in samples)
    return Figure.of([sum(sample["count"] for sample in samples) / used]) if used else None


def _out(samples: Sequence[Sample]) -> list[Row]:
    pgmq = rates(pick(samples, "out", "pgmq"))
    bare = rates(pick(samples, "out", "bare", variant="IN (SELECT …)"))
    quick = rates(pick(samples, "out", "bare", variant="= ANY (ARRAY(SELECT …))"))
    found = []
    for mode in MODES:
        for call, bound in zip(CALLS, AGAINST_PGMQ.get(mode, (None,) * len(CALLS))):
            name = f"{mode}, sent in calls of {call:,}"
            ours = rates(pick(samples, "out", "ours", variant=name))
            found.append(Row("out", f"{name}, against pgmq", ratio(ours, pgmq), bound))
            found.append(Row("out", f"{name}, against the bare table", ratio(ours, bare)))
            if mode == "batch":
                found.append(Row("out", f"{name}, against the bare table by array", ratio(ours, quick)))
            if mode == "block":
                in_place = rates(pick(samples, "out", "ours", variant=f"batch, sent in calls of {call:,}"))
                found.append(Row("out", f"{name}, against a batch in place", ratio(ours, in_place)))
    return found


def _life(samples: Sequence[Sample]) -> list[Row]:
    def bytes_of(contender: str, variant: str, between: bool = False) -> float | None:
        found = pick(samples, "life", contender, variant=variant, checkpoint_between=between)
        figure = Figure.of(sample["bytes"] / sample["count"] for sample in found)
        return figure.median if figure else None

    def against(ours: float | None, theirs: float | None) -> float | None:
        return ours / theirs if ours and theirs else None

    found = []
    for between, note in ((False, ""), (True, ", a checkpoint between in and out")):
        bounds = (None, None) if between else (1.5, 1.5)
        large = against(bytes_of("ours", "calls of 1,000", between), SIZE)
        single = against(bytes_of("ours", "single sends", between), bytes_of("bare", "single sends", between))
        ten = against(bytes_of("ours", "calls of 10", between), SIZE)
        found += [
            Row("log", f"calls of 1,000, against the message's own bytes{note}", large, bounds[0], False),
            Row("log", f"calls of 10, against the message's own bytes{note}", ten),
            Row("log", f"single sends, against the bare table's{note}", single, bounds[1], False),
        ]
    return found


def _flat(samples: Sequence[Sample]) -> list[Row]:
    found = []
    for state, note, crowded in (("first", "nothing cut", 1.5), ("next", "the next block", 1.3)):
        few, many, crowd = (
            values(pick(samples, "block", "ours", variant=variant, state=state), "seconds")
            for variant in ("few", "many", "crowd")
        )
        found += [
            Row("flat", f"many waiting, against few ({note})", ratio(many, few), 1.5, False),
            Row("flat", f"many over a crowd of origins, against over 100 ({note})", ratio(crowd, many), crowded, False),
            Row("flat", f"many over a crowd of origins, against few ({note})", ratio(crowd, few), crowded, False),
        ]
    return found


def _held(samples: Sequence[Sample]) -> list[Row]:
    """All turns, and the last quarter, where what could not be vacuumed is most."""
    last = max((sample["round"] for sample in pick(samples, "held")), default=0)
    found = []
    for since, note in ((0, "all blocks"), (last * 3 // 4, "the last quarter of them")):
        held, free = (
            values(
                [sample for sample in pick(samples, "held", "ours", variant=variant) if sample["round"] >= since],
                "seconds",
            )
            for variant in ("held open", "none")
        )
        found.append(Row("flat", f"beside a transaction held open, against none ({note})", ratio(held, free), 2, False))
    return found


def _passed(samples: Sequence[Sample]) -> list[Row]:
    none, found = values(pick(samples, "passed", "ours", variant="none"), "seconds"), []
    for variant in ("paused", "in flight"):
        taken = pick(samples, "passed", "ours", variant=variant)
        passing = values(taken, "seconds")
        each, detail = None, ""
        if passing and none:
            # Noise can make the block that skips nothing the slower one.
            each = max((passing.median - none.median) / taken[0]["passed"] * 1e6, 0.01)
            detail = f"{taken[0]['passed']:,} origins, a block of {passing.median / none.median:.2f} x the time"
        found.append(Row("flat", f"skipping an origin that is {variant}", each, 2, False, detail, "µs"))
    return found


def _planning(samples: Sequence[Sample]) -> list[Row]:
    found = []
    for call in CALLS:
        name = f"sent in calls of {call:,}"
        plan = values(pick(samples, "plan", "ours", variant=name), "seconds")
        whole = values(pick(samples, "baseline", "ours", variant=name, payloads=True), "seconds")
        bare = values(pick(samples, "baseline", "ours", variant=name, payloads=False), "seconds")
        found += [
            Row(
                "plan",
                f"{name}, against reading the inbox rows and walking their lengths",
                ratio(plan, whole),
                3,
                False,
            ),
            Row("plan", f"{name}, against reading and walking the lengths alone", ratio(plan, bare)),
        ]
    return found
