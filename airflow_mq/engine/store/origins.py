"""Repository of origins: pauses, settings, groups and measured work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .primitives import Repository, as_json, columns
from .rows import settings_of


class PauseRow(NamedTuple):
    """A paused origin."""

    origin: str
    reason: str
    actor: str
    at: int
    until: int | None
    below: bool


class GroupRow(NamedTuple):
    """A group of origins; `owed` is the origin that an outermost group owes."""

    path: str
    deficit: int
    level: int
    owed: str
    #: Where it is written, the change of the deficit: others may have charged the group since it was read.
    delta: int = 0


class BucketRow(NamedTuple):
    """The bucket of an origin or a group."""

    path: str
    balance: str
    #: Until when its queues wait; -1 if the next plan looks at them, because the settings changed.
    wake_at: int
    #: How often its settings have changed.
    terms: int


class Origins(Repository):
    """Origins and groups of a ring."""

    __slots__ = ()

    def pause(
        self, ring: int, origin: str, *, reason: str, actor: str, now: int, until: int | None, below: bool
    ) -> None:
        """Pause an origin, or replace its pause."""
        self.unit.run("pause", ring=ring, origin=origin, reason=reason, who=actor, now=now, until=until, below=below)

    def resume(self, ring: int, origin: str) -> bool:
        """Resume an origin; return whether it was paused."""
        return bool(self.unit.run("resume", ring=ring, origin=origin))

    def paused(self, ring: int, now: int) -> list[PauseRow]:
        return [PauseRow(*row) for row in self.unit.rows("paused", ring=ring, now=now)]

    def buckets(self, ring: int, paths: Sequence[str]) -> list[BucketRow]:
        """Return the stored buckets of these origins and groups."""
        return [BucketRow(*row) for row in self.unit.rows("buckets", {"path": paths}, ring=ring)]

    def save_buckets(self, ring: int, rows: Sequence[BucketRow]) -> None:
        self.unit.put("save_bucket", columns(BucketRow._fields, rows), ring=ring)

    def renew_bucket(self, ring: int, path: str, *, kept: bool) -> None:
        """Let the queues of a bucket no longer wait after a change of its settings; fill it if it is not kept."""
        self.unit.run("renew_bucket", ring=ring, path=path, kept=kept)

    def lock_settings(self, ring: int, origin: str) -> Any:
        """Return the settings of an origin for a change in the same transaction."""
        return self.unit.only("lock_setting", ring=ring, origin=origin)[0]

    def set(self, ring: int, origin: str, settings: object, *, guaranteed: bool, quota: int | None) -> None:
        """Write the settings of an origin."""
        given = {"settings": as_json(settings), "guaranteed": guaranteed, "quota": quota}
        self.unit.run("set_setting", ring=ring, origin=origin, **given)

    def quotas(self, ring: int, paths: Sequence[str] | None = None) -> dict[str, int]:
        """Return the quotas of those of these queues and groups that have one, or of all."""
        rows = self.all_settings(ring) if paths is None else self.settings(ring, paths)
        quotas = ((name, settings_of(stored).quota) for name, stored in rows)
        return {name: quota for name, quota in quotas if quota is not None}

    def settings(self, ring: int, origins: Sequence[str]) -> list[tuple[str, Any]]:
        """Return the settings of these origins and groups."""
        return self.unit.rows("settings", {"origin": origins}, ring=ring)

    def all_settings(self, ring: int) -> list[tuple[str, Any]]:
        """Return the settings of all origins and groups."""
        return self.unit.rows("all_settings", ring=ring)

    def save_groups(self, ring: int, rows: Sequence[GroupRow]) -> None:
        self.unit.put("save_group", columns(GroupRow._fields, rows), ring=ring)

    def forget_groups(self, ring: int) -> None:
        self.unit.run("forget_branches", ring=ring)

    def measures(self, ring: int, processor: str | None, origin: str | None = None) -> list[tuple[str, str, Any]]:
        """Return processor, origin and what was measured of its work, of one processor and for one origin if given."""
        return self.unit.rows("measure", ring=ring, processor=processor, origin=origin)

    def save_measure(self, ring: int, processor: str, origin: str, data: object) -> None:
        """Write what was measured of a processor's work."""
        self.unit.run("save_measure", ring=ring, processor=processor, origin=origin, data=as_json(data))
