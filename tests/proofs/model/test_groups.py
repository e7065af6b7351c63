"""The machine over a ring with paths: pauses with all below, shares, and paths that are switched off and on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from airflow_mq import RingConfig, Weight

from .clock import SECOND, Clock
from .drawn import ORIGINS, configs, troubled
from .machine import QueueMachine
from .plain import Pair
from .test_model import chosen, hasty, run

__all__ = ["hasty"]
names = st.sampled_from(["0", "2", "3"])


class GroupMachine(QueueMachine):
    """Everything that can be done to a ring; the traces' names are numbers, so each is a group of one."""

    @initialize(config=configs, listen=st.booleans(), data=st.data())
    def begin(self, config: RingConfig, listen: bool, data: st.DataObject) -> None:
        super().begin(replace(config, order="deficit", paths=True), listen, data)

    @rule(name=names, until=st.sampled_from([None, None, 10.0]))
    def pause_group(self, name: str, until: float | None) -> None:
        self.happened()
        found = self.sides.do(lambda side: side.queue.admin.pause(name, "all of it", until, below=True))
        if not self.plain.config.paths:
            assert found == "ConfigRefused"
            return
        assert found is None
        self.met["a group was paused"] += 1
        self.plain.groups[name] = None if until is None else self.clock.now + int(until * SECOND)
        self.plain.book(name).paused = False

    @rule(origin=troubled, until=st.sampled_from([None, None, 10.0, 0.0]))
    def pause(self, origin: str, until: float | None) -> None:
        """One of them alone; it is not a group then any more."""
        self.plain.groups.pop(origin, None)
        super().pause(origin, until)

    @rule(name=names)
    def resume(self, name: str) -> None:
        """Either pause ends."""
        was_paused = name in self.plain.groups or self.plain.book(name).paused
        self.plain.groups.pop(name, None)
        self.resumes(name, was_paused)

    def set_origin_at(
        self, origin: str, share: int | None, most: Any, least: Pair | None, ordered: bool | None,
        unset: set[str] | None = None,
    ) -> None:  # fmt: skip
        """A *most* would be the group's."""
        super().set_origin_at(origin, share, None, least, ordered, unset)

    @rule(origin=st.sampled_from(ORIGINS), share=st.integers(1, 4), least=st.none() | st.just((4, 4)))
    def set_origin(self, origin: str, share: int, least: Pair | None) -> None:
        self.set_origin_at(origin, share, None, least, None)

    def change(self, data: st.DataObject) -> None:
        self.happened()
        changes: dict[str, Any] = data.draw(st.fixed_dictionaries({}, optional={
            "paths": st.booleans(), "ordered": st.booleans(), "rounds_per_block": st.sampled_from([1, 2, 8]),
            "service_weight": st.sampled_from([Weight(12, 12), Weight(15, 25), Weight(100, 100)]),
        }), "what changes")  # fmt: skip
        config, now = self.plain.config, self.clock.now
        held_up = any(until is None or until > now for until in self.plain.groups.values())
        found = self.sides.do(lambda side: side.queue.admin.change_ring(**changes))
        if changes.get("paths", config.paths) != config.paths and held_up:
            assert found == "ConfigRefused"
        else:
            assert found == config.changed(**changes)
            self.plain.config = found
        assert all(side.queue.config == self.plain.config for side in self.sides.all)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_groups_do_what_the_model_does(tmp_path: Path, clock: Clock, hasty: None) -> None:
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(15, 30), GroupMachine)
    assert met["a group was paused"]
