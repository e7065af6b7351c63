"""Loader of groups, in a ring with paths: their settings, pauses and deficits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...rules.book import DEFAULT_STANDING, Branch, Standing
from ...rules.groups import ROOT, names_above
from ...rules.priority import origin_of
from ...rules.weight import UNLIMITED, Weight
from ...rules.working_set import WorkingSet
from .. import codec
from ..rows import standing_of
from .source import Source


class GroupLoader:
    """Loads groups and settings once each."""

    def __init__(self, working_set: WorkingSet, source: Source) -> None:
        self.working_set = working_set
        self.source = source
        self.standings: dict[str, Standing] = {}
        #: Stored deficits of all groups, once they are loaded.
        self.deficits: dict[str, int] | None = None
        self._paused: frozenset[str] | None = None

    def load_branches(self) -> None:
        """Load all groups, once."""
        if self.deficits is not None:
            return
        self.deficits = {}
        for path, deficit, level, owed in self.source.branches():
            self.working_set.branches[path] = Branch(path, deficit, level)
            self.deficits[path] = deficit
            if path == ROOT:
                with codec.reading("the origins that come first in the next block"):
                    self.working_set.owed = codec.read_json(owed)["first"]

    def standing(self, name: str) -> Standing:
        """Return the settings of a queue or of a group."""
        if name not in self.standings:
            self._fetch([name])
        return self.standings[name]

    def load_standings(self, origins: Iterable[str]) -> None:
        """Load the settings of the groups that hold these queues; those of a queue come with its book."""
        if self.working_set.config.paths:
            names = {name for origin in map(origin_of, origins) for name in names_above(origin)}
            self._fetch(sorted(names - self.standings.keys()))

    def _fetch(self, names: list[str]) -> None:
        if names:
            self.standings |= dict.fromkeys(names, DEFAULT_STANDING)
            self.standings |= {name: standing_of(settings) for name, settings in self.source.standings(names)}

    def bounded(self, origin: str, standing: Standing) -> Standing:
        """Return settings with the smallest *most* of the queue and the groups that hold it."""
        mosts = [most for name in names_above(origin_of(origin)) if (most := self.standing(name).most) is not None]
        if not mosts:
            return standing
        return replace(standing, most=Weight(*map(min, *mosts, standing.most or UNLIMITED)))

    def paused(self) -> frozenset[str]:
        """Return the names below which everything is paused."""
        if self._paused is None:
            self._paused = self.source.paused_groups(self.working_set.now)
        return self._paused

    def is_paused_below(self, origin: str) -> bool:
        """Return whether an origin is paused together with a group that holds it, or with all below it."""
        if not (self.working_set.config.paths and self.paused()):
            return False
        name = origin_of(origin)
        return not self.paused().isdisjoint((name, *names_above(name)))

    def changed_rows(self) -> list[tuple[str, int, int, int, str]]:
        """Return path, deficit, its change, level and owed origins of the groups that changed."""
        changed = self.working_set.changes.branches
        if not changed:
            return []
        self.load_branches()
        assert self.deficits is not None
        rows = []
        for path in sorted(changed):
            branch = self.working_set.branches[path]
            owed = codec.write_json({"first": self.working_set.owed}).decode() if path == ROOT else ""
            delta = branch.deficit - self.deficits.get(path, branch.deficit)
            rows.append((path, branch.deficit, delta, branch.level, owed))
            self.deficits[path] = branch.deficit
        return rows
