"""Model of a disk that loses power: what was synced is there, and of each later change any part may be there."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from .recording import Change

#: The units in which a disk writes: sectors or pages.
UNITS = (512, 4096)
#: Chances of a unit that was not synced.
CHANCES = (0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 1.0)


@dataclass
class File:
    """One inode: its synced bytes, and the changes since then."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            apply(self.synced, change)
        self.pending.clear()

    def after_loss(self, draw: random.Random, chance: float) -> bytes:
        """Return the bytes after a power loss: of each unit any version since the last sync, and any recorded size."""
        data, unit = bytearray(self.synced), draw.choice(UNITS)
        # A file that grew without its data holds zeros, or what was there before.
        filler = draw.choice((bytes, draw.randbytes))
        stopped: set[int] = set()
        size = len(data)
        for change in self.pending:
            if change.kind == "T":
                size = change.offset
                if draw.random() < chance:
                    del data[size:]
                    data.extend(bytes(size - len(data)))
                continue
            size = max(size, change.offset + len(change.data))
            for number in range(change.offset // unit, (change.offset + len(change.data) - 1) // unit + 1):
                if number in stopped or draw.random() >= chance:
                    stopped.add(number)
                    continue
                first = max(number * unit, change.offset)
                part = change.data[first - change.offset : (number + 1) * unit - change.offset]
                data.extend(filler(max(first - len(data), 0)))
                data[first : first + len(part)] = part
        if draw.random() < 0.5:
            data.extend(filler(max(size - len(data), 0)))
        return bytes(data)


def apply(data: bytearray, change: Change) -> None:
    """Apply a write or a new size."""
    if change.kind == "T":
        del data[change.offset :]
        data.extend(bytes(change.offset - len(data)))
    else:
        data.extend(bytes(max(change.offset - len(data), 0)))
        data[change.offset : change.offset + len(change.data)] = change.data


@dataclass
class Disk:
    """Files and entries of folders. What is below `world` belongs to the world outside, which loses nothing."""

    world: Path
    #: Whether the disk acknowledges syncs that it does not do.
    lies: bool = False
    files: dict[int, File] = field(default_factory=dict)
    #: Synced entries: inodes by path; and changes of entries since their folder was synced.
    entries: dict[str, int] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)
    outside: dict[str, bytearray] = field(default_factory=dict)

    def change(self, change: Change) -> None:
        """Record a change."""
        if change.path.startswith(f"{self.world}/"):
            if change.kind in "WT":
                apply(self.outside.setdefault(change.path, bytearray()), change)
        elif change.kind in "WT":
            self.files.setdefault(change.inode, File()).pending.append(change)
        elif change.kind in "CUR":
            self.pending.append(change)
            if change.kind == "C":
                self.files[change.inode] = File()
        elif change.kind == "S" and not self.lies:
            self._sync(change)

    def _sync(self, change: Change) -> None:
        if change.inode in self.files:
            self.files[change.inode].sync()
            return
        done = [entry for entry in self.pending if str(Path(entry.path).parent) == change.path]
        for entry in done:
            _enter(self.entries, entry)
            self.pending.remove(entry)

    def after_loss(self, draw: random.Random) -> dict[str, bytes]:
        """Return the files after a power loss."""
        chance, entries = draw.choice(CHANCES), dict(self.entries)
        for change in self.pending:
            if draw.random() < chance:
                _enter(entries, change)
        # The shared memory is never synced and has no place in recovery.
        lost = {path: draw.randbytes(32_768) for path in entries if path.endswith("-shm")}
        kept = {path: self.files[inode].after_loss(draw, chance) for path, inode in entries.items() if path not in lost}
        return {**kept, **lost, **{path: bytes(data) for path, data in self.outside.items()}}


def _enter(entries: dict[str, int], change: Change) -> None:
    if change.kind == "C":
        entries[change.path] = change.inode
    elif change.kind == "U":
        entries.pop(change.path, None)
    elif change.path in entries:
        entries[change.data.decode()] = entries.pop(change.path)
