"""What all rules stand on: the stores, the plain model, and how they are compared."""

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
    """One ring on each store, the plain model beside it, and how the two are compared."""

    uris: ClassVar[Sequence[str]]
    clock: ClassVar[Clock]
    #: What was met so far, by name: a machine that never gets anywhere proves nothing.
    met: ClassVar[Counter[str]]

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            self.sides.close()

    # How things are compared.

    def expect(self, act: Any) -> Any:
        """What the plain model answers: a value, or the name of a refusal."""
        try:
            return act()
        except Refusal as refusal:
            return str(refusal)

    def both(self, real: Any, plain: Any) -> Any:
        found, expected = self.sides.do(real), self.expect(plain)
        assert found == expected, f"{found!r} is not {expected!r}"
        if isinstance(found, str):
            self.met[found] += 1
        return found

    def joins(self) -> None:
        """What is due joins its queue before anything else happens."""
        self.sides.do(lambda side: side.queue.admin.force_set_head("nobody"))

    def happened(self) -> None:
        for block in self.held:
            block.meanwhile += 1

    def adopt_newcomers(self, before: list[str]) -> None:
        """In which order one call's new queues enter the ring is not said: take it as it is."""
        found = self.sides.do(lambda side: side.queue.inspect.ring_order(100))
        if found == self.plain.ring:
            # Also where a queue left the ring within the call, and came back behind a newcomer.
            return
        assert found[: len(before)] == before == self.plain.ring[: len(before)]
        assert sorted(found) == sorted(self.plain.ring)
        self.plain.ring = found

    def told(self) -> set[Event]:
        """The events since the last look, without taking note of them."""
        return set(self.told_in_order())

    def told_in_order(self) -> list[Event]:
        """The same, as they came about."""
        side = self.sides.all[0]
        return [Event(one.name, one.origin, one.page, one.index) for one in side.queue.inspect.events(after=side.seen)]

    def living(self, block: Held) -> bool:
        return block.state == "planned" and block.deadline > self.clock.now

    def interleave(self, data: st.DataObject) -> None:
        """At least one other thing happens between a plan and its settling."""
        raise NotImplementedError
