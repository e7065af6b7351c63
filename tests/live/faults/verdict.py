"""Verdict on a ring after a fault: what was lost, settled twice, out of order or over its limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .stage import ORIGINS, Stage


@dataclass
class Verdict:
    """Result of one run of a row."""

    accepted: int = 0
    lost: int = 0
    settled_twice: int = 0
    out_of_order: int = 0
    over_weight: int = 0
    findings: int = 0
    #: Messages that a processor got more than once.
    repeated: int = 0
    #: Blocks from the fault on.
    blocks: int = 0
    recovered_in: float | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        wrong = (self.lost, self.settled_twice, self.out_of_order, self.over_weight, self.findings)
        return not any(wrong) and not self.problems and self.recovered_in is not None


def judge(stage: Stage, ring: str) -> Verdict:
    """Compare what was sent with the events, blocks and diary of a ring."""
    verdict = Verdict(stage.sent[ring])
    with stage.queue(ring) as queue:
        ends = Counter((end.origin, end.page, end.index) for end in queue.inspect.events() if end.name == "Processed")
        blocks, violations = queue.blocks.list(limit=1_000), queue.check()
    diary = stage.diary(ring)
    seen = Counter(entry["number"] for entry in diary)
    verdict.lost = verdict.accepted - min(len(ends), len(seen))
    verdict.settled_twice = sum(ends.values()) - len(ends)
    verdict.out_of_order = out_of_order(diary)
    verdict.over_weight = sum(block.predicted.exceeds(block.limit) for block in blocks)
    verdict.findings = len(violations)
    verdict.repeated = sum(count > 1 for count in seen.values())
    verdict.problems += map(str, violations)
    if not stage.is_drained(ring):
        verdict.problems.append("the ring is not drained")
    return verdict


def out_of_order(diary: Iterable[dict[str, Any]]) -> int:
    """Return how many messages a processor got before an earlier one of their origin."""
    following: dict[str, int] = {}
    wrong = 0
    for entry in diary:
        expected = following.setdefault(entry["origin"], entry["number"] % ORIGINS)
        if entry["number"] > expected:
            wrong += 1
        following[entry["origin"]] = max(expected, entry["number"] + ORIGINS)
    return wrong
