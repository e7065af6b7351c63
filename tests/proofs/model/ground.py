"""Base of all rules: the stores, the plain model, and their comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from .clock import Clock
from .plain import Event, Refusal
from .settling import Held


class Ground(RuleBasedStateMachine):
    """A ring on each store, the plain model, and their comparison."""

    uris: ClassVar[Sequence[str]]
    clock: ClassVar[Clock]
    #: Reached situations by name; tests require some, so that the machine covers them.
    met: ClassVar[Counter[str]]

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            self.sides.close()

    # Comparison.

    def expect(self, act: Any) -> Any:
        """Return the answer of the plain model: a value, or the name of a refusal."""
        try:
            return act()
        except Refusal as refusal:
            return str(refusal)

    def both(self, real: Any, plain: Any) -> Any:
        answer, expected = self.sides.do(real), self.expect(plain)
        assert answer == expected, f"{answer!r} is not {expected!r}"
        if isinstance(answer, str):
            self.met[answer] += 1
        return answer

    def joins(self) -> None:
        """Let due messages join their queues before other changes."""
        self.sides.do(lambda side: side.queue.admin.force_set_head("nobody"))

    def happened(self) -> None:
        for block in self.held:
            block.meanwhile += 1

    def adopt_newcomers(self, before: list[str]) -> None:
        """Adopt the stored ring order, because the order of one call's new queues is not specified."""
        order = self.sides.do(lambda side: side.queue.inspect.ring_order(100))
        if order == self.plain.ring:
            # This includes a queue that left the ring within the call and came back behind a newcomer.
            return
        assert order[: len(before)] == before == self.plain.ring[: len(before)]
        assert sorted(order) == sorted(self.plain.ring)
        self.plain.ring = order

    def new_events(self) -> set[Event]:
        """Return the events since the last read as a set, without marking them as read."""
        return set(self.new_events_in_order())

    def new_events_in_order(self) -> list[Event]:
        """Return the events since the last read in order, without marking them as read."""
        side = self.sides.all[0]
        return [
            Event(event.name, event.origin, event.page, event.index)
            for event in side.queue.inspect.events(after=side.seen)
        ]

    def living(self, block: Held) -> bool:
        return block.state == "planned" and block.deadline > self.clock.now

    def interleave(self, data: st.DataObject) -> None:
        """Apply at least one other rule between a plan and its settlement."""
        raise NotImplementedError
