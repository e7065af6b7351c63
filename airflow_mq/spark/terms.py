"""Terms of a block: the rules by which its messages are processed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..engine.rules.outcome import Outcome, Overweight, SendBounds, Yield, is_tried_alone
from ..engine.rules.weight import Weight


@dataclass(frozen=True)
class JobTerms:
    """The rules by which a block's messages are processed, as the plan resolved them for each origin."""

    #: Whether an origin stops at the first message that goes back.
    ordered: bool
    #: Bounds of the messages that a processor enqueues: their length, their origins and their headers.
    bounds: SendBounds
    #: Largest weight of any message: a heavier one is set aside, and its queue goes on.
    largest: Weight | None = None
    #: Whether logs may quote the errors that processors raise (`airflow_mq.failures`).
    log_texts: bool = False
    #: Id of the block, and a name for its output that no other block of any store has.
    block: int | None = None
    block_name: str = ""
    #: Origins for which the opposite of `ordered` holds.
    exceptions: frozenset[str] = frozenset()
    #: `largest` of the origins that have a *most* of their own.
    largest_of: Mapping[str, Weight] = field(default_factory=dict)
    #: Attempts after which a message is set aside.
    max_attempts: int | None = None
    #: Name of the ring and its store, by which a processor's own queues are recognized (`engine.queue.context`).
    place: str = ""

    def is_alone(self, attempt: int) -> bool:
        """Return whether a message is tried alone at this attempt, from 1."""
        return is_tried_alone(attempt, self.max_attempts)

    def is_ordered(self, origin: str) -> bool:
        """Return whether an origin's messages are processed one after the other."""
        return self.ordered != (origin in self.exceptions)

    def stops(self, origin: str, outcome: Outcome | None) -> bool:
        """Return whether the later messages of the origin go back without an attempt."""
        if outcome is None or not self.is_ordered(origin):
            return False
        if isinstance(outcome, Overweight):
            largest = self.largest_of.get(origin, self.largest)
            return largest is None or not outcome.weight.exceeds(largest)
        return isinstance(outcome, Yield)
