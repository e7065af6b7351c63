"""Groups of origins, of a ring with paths: what is set for them, and what they are owed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...core.book import DEFAULT_STANDING, Branch, Standing
from ...core.groups import ROOT, names_above
from ...core.priority import origin_of
from ...core.weight import UNLIMITED, Weight
from .. import codec
from ..thaw import standing_of
from .memory import Memory


class Groups(Memory):
    """The part of a shelf that knows groups."""

    def load_branches(self) -> None:
        """Read all groups, once."""
        if self.known_branches is not None:
            return
        self.known_branches = {}
        for path, deficit, level, owed in self.unit.origins.groups(self.ring_id):
            self.branches[path] = Branch(path, deficit, level)
            self.known_branches[path] = deficit
            if path == ROOT:
                with codec.reading("who comes first in the next block"):
                    self.owed = codec.read_json(owed)["first"]

    def standing(self, origin: str) -> Standing:
        """What is set under this name, for a queue or for a group."""
        if origin not in self.standings:
            self._fetch_standings([origin])
        return self.standings[origin]

    def _load_standings(self, origins: Iterable[str]) -> None:
        """What is set for the groups that hold these queues; what is set for a queue comes with its book."""
        if self.config.paths:
            names = {name for origin in map(origin_of, origins) for name in names_above(origin)}
            self._fetch_standings(sorted(names - self.standings.keys()))

    def _fetch_standings(self, names: list[str]) -> None:
        if names:
            self.standings |= dict.fromkeys(names, DEFAULT_STANDING)
            self.standings |= {
                name: standing_of(said) for name, said in self.unit.origins.settings(self.ring_id, names)
            }

    def _within_groups(self, origin: str, standing: Standing) -> Standing:
        """No queue gets more than a group that holds it."""
        mosts = [most for name in names_above(origin_of(origin)) if (most := self.standing(name).most) is not None]
        if not mosts:
            return standing
        return replace(standing, most=Weight(*map(min, *mosts, standing.most or UNLIMITED)))

    def paused_groups(self) -> frozenset[str]:
        """The names below which everything is paused."""
        if self._paused_groups is None:
            self._paused_groups = frozenset(self.unit.origins.paused_groups(self.ring_id, self.now))
        return self._paused_groups

    def is_paused_below(self, origin: str) -> bool:
        """Whether this origin is paused together with a group that holds it, or all below it."""
        if not (self.config.paths and self.paused_groups()):
            return False
        whose = origin_of(origin)
        return not self.paused_groups().isdisjoint((whose, *names_above(whose)))

    def _save_branches(self) -> None:
        if not self.changed_branches:
            return
        self.load_branches()
        assert self.known_branches is not None
        rows = []
        for path in sorted(self.changed_branches):
            branch = self.branches[path]
            owed = codec.write_json({"first": self.owed}).decode() if path == ROOT else ""
            delta = branch.deficit - self.known_branches.get(path, branch.deficit)
            rows.append((path, branch.deficit, delta, branch.level, owed))
            self.known_branches[path] = branch.deficit
        self.unit.origins.save_groups(self.ring_id, rows)
        self.changed_branches = set()
