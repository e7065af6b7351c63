"""Loader of groups, in a ring with paths: their settings, pauses and deficits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...rules.book import BUDGET, DEFAULT_SETTINGS, PAUSED, Group, QueueSettings
from ...rules.groups import ROOT, names_above, paths_of
from ...rules.priority import origin_of
from ...rules.weight import UNLIMITED, Weight
from ...rules.working_set import WorkingSet
from .. import codec
from ..origins import GroupRow
from ..rows import settings_of
from .source import Source


class GroupLoader:
    """Loads groups and settings once each."""

    def __init__(self, working_set: WorkingSet, source: Source) -> None:
        self.working_set = working_set
        self.source = source
        self.known: dict[str, QueueSettings] = {}
        #: Stored deficits of all groups, once they are loaded.
        self.deficits: dict[str, int] | None = None
        self._halted: dict[str, frozenset[str]] | None = None

    def load_groups(self) -> None:
        """Load all groups, once."""
        if self.deficits is not None:
            return
        self.deficits = {}
        for row in self.source.groups():
            self.working_set.groups[row.path] = Group(row.path, row.deficit, row.level)
            self.deficits[row.path] = row.deficit
            if row.path == ROOT:
                with codec.reading("the origins that come first in the next block"):
                    self.working_set.owed = codec.read_json(row.owed)["first"]

    def settings(self, name: str) -> QueueSettings:
        """Return the settings of a queue or of a group."""
        if name not in self.known:
            self._fetch([name])
        return self.known[name]

    def load_settings(self, origins: Iterable[str]) -> None:
        """Load the settings of the groups that hold these queues; those of a queue come with its book."""
        if self.working_set.config.paths:
            names = {name for origin in map(origin_of, origins) for name in names_above(origin)}
            self._fetch(sorted(names - self.known.keys()))

    def _fetch(self, names: list[str]) -> None:
        if names:
            self.known |= dict.fromkeys(names, DEFAULT_SETTINGS)
            self.known |= {name: settings_of(settings) for name, settings in self.source.settings(names)}

    def bounded(self, origin: str, settings: QueueSettings) -> QueueSettings:
        """Return settings with the smallest *most* of the queue and the groups that hold it."""
        if not self.working_set.config.paths:
            return settings
        mosts = [most for name in names_above(origin_of(origin)) if (most := self.settings(name).most) is not None]
        if not mosts:
            return settings
        return replace(settings, most=Weight(*map(min, *mosts, settings.most or UNLIMITED)))

    def halted(self) -> dict[str, frozenset[str]]:
        """Return the names of groups that are skipped with everything below them, by reason."""
        if self._halted is None:
            names = map(frozenset, self.source.halted(self.working_set.now))
            self._halted = dict(zip((PAUSED, BUDGET), names))
        return self._halted

    def is_group_paused(self, origin: str) -> bool:
        """Return whether an origin is paused together with a group that holds it, or with all below it."""
        paused = self.halted()[PAUSED] if self.working_set.config.paths else frozenset[str]()
        return bool(paused) and not paused.isdisjoint(paths_of(origin, True))

    def changed_rows(self) -> list[GroupRow]:
        """Return the groups that changed, as rows."""
        changed = self.working_set.changes.groups
        if not changed:
            return []
        self.load_groups()
        assert self.deficits is not None
        rows = []
        for path in sorted(changed):
            group = self.working_set.groups[path]
            owed = codec.write_json({"first": self.working_set.owed}).decode() if path == ROOT else ""
            delta = group.deficit - self.deficits.get(path, group.deficit)
            rows.append(GroupRow(path, group.deficit, group.level, owed, delta))
            self.deficits[path] = group.deficit
        return rows
