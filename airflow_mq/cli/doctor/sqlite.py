"""Checks of a store on SQLite."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import words
from .findings import Finding, fine, note, wrong

if TYPE_CHECKING:
    from ...engine.store import Store

MIB = 1 << 20
#: The largest size of the write-ahead log. Without a long reader, SQLite starts it anew at about 4 MiB.
LARGE_LOG = 64 * MIB
#: How much of the file may be empty, in bytes and as a part of it.
FREE_BYTES, FREE_PART = 64 * MIB, 0.5
#: How little room there may be on the disk.
LITTLE_ROOM = 128 * MIB


def look(store: Store[Any]) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    path = store.address.path
    assert path is not None
    with store.loose() as unit:
        yield _journal(unit.server.journal_mode())
        yield _log(path)
        yield _free(*unit.server.file_pages(), path)
    yield _rights(path)
    yield _room(path)


def _journal(mode: str) -> Finding:
    if mode == "wal":
        return fine("settings", "the write-ahead log is on")
    return wrong(
        "settings",
        f"the journal mode is {mode!r}, so readers and writers wait for each other",
        "close all programs that use the file, and open it again; its folder has to be writable and on a local disk",
    )


def _log(path: Path) -> Finding:
    try:
        size = os.stat(f"{path}-wal").st_size
    except OSError:
        size = 0
    if size <= LARGE_LOG:
        return fine("log", f"the write-ahead log takes {words.size(size)}")
    return wrong(
        "log",
        f"the write-ahead log has grown to {words.size(size)}: a reader keeps it from shrinking, and reads get slow",
        "end the program that keeps a transaction open on the file; the log then starts anew by itself",
    )


def _free(pages: int, free: int, page_size: int, path: Path) -> Finding:
    empty = free * page_size
    if empty < FREE_BYTES or free < FREE_PART * pages:
        return fine("bloat", f"{words.size(empty)} of {words.size(pages * page_size)} are empty")
    return wrong(
        "bloat",
        f"{words.size(empty)} of the file's {words.size(pages * page_size)} are empty",
        f"harmless, as it is used again; to get the room back while no program works: sqlite3 {path.name} VACUUM",
    )


def _rights(path: Path) -> Finding:
    files = [Path(f"{path}{kind}") for kind in ("", "-wal", "-shm")]
    public = [str(file) for file in files if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
    if not public:
        return fine("rights", "only the owner can read the file")
    return note(
        "rights",
        f"other users of this machine can read or write {path.name}, as far as its folder lets them in",
        f"chmod 600 {' '.join(map(shlex.quote, public))}, unless they are meant to",
    )


def _room(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    if free >= LITTLE_ROOM:
        return fine("disk", f"{words.size(free)} are free")
    return wrong(
        "disk", f"only {words.size(free)} are free on the disk of the store", "make room before enqueuing fails"
    )
