"""Places where files land: the interface of a folder and of an object store's prefix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from .. import log
from .lines import Stretch
from .names import bytes_of, digest

RECEIVED, REFUSED = ".received", ".refused"
#: An origin of 255 bytes has at most 128 parts; no program opens a path of more bytes.
DEEPEST, LONGEST_PATH = 128, 4_096
#: Bytes that are read of a note: the mark of a line has fewer.
LONGEST_NOTE = 100


@dataclass(frozen=True)
class Found:
    """A file as it was when it was found."""

    #: Path below the folder, with `/` between its parts.
    path: str
    size: int
    #: Version of the file: changes when the file does.
    stamp: str
    #: Inode, time and size of a local file, which identify the version while the program runs.
    identity: tuple[int, int, int] | None = None

    @property
    def short(self) -> str:
        """Short hash of its path and version."""
        return digest(f"{self.path}@{self.stamp}")


class Place(ABC):
    """A place where files land."""

    #: Name of the place in keys and for people.
    name: str
    #: Number of folders that the last listing could not read.
    unreadable = 0

    @abstractmethod
    def files(self, settle: float) -> Iterator[Found]:
        """Yield the complete files."""

    @abstractmethod
    def open(self, found: Found) -> IO[bytes]:
        """Open a file; raise `Changed` if it has another version now."""

    @abstractmethod
    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        """Return whether an open file still has the version that was found."""

    def stretch(self, found: Found, start: int = 0, length: int | None = None) -> IO[bytes]:
        """Open a stretch of a file, or all of it; reading it raises `Changed` at its end if the file changed."""
        file, most = self.open(found), found.size if length is None else length
        return cast("IO[bytes]", Stretch(file, start, most, most == found.size, lambda: self.is_same(found, file)))

    @abstractmethod
    def move(self, found: Found, folder: str) -> str | None:
        """Move a file below `.received` or `.refused`; return its new path, or None if it has another version now."""

    @abstractmethod
    def drop(self, found: Found) -> bool:
        """Delete a file unless it has another version now; return whether it was deleted."""

    @abstractmethod
    def ours(self, folder: str, path: str, suffix: str) -> str:
        """Return the path below `.received` or `.refused` for a file, within the longest path."""

    @abstractmethod
    def note(self, path: str, text: str) -> None:
        """Write a receipt or a note."""

    @abstractmethod
    def read(self, path: str) -> str:
        """Return the beginning of a receipt or a note; empty without one."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a note."""


class Unreachable:
    """Files whose paths are too deep or too long: counted, and reported once."""

    def __init__(self, place: str) -> None:
        self.place, self.count, self.first = place, 0, ""

    def is_beyond(self, path: str) -> bool:
        """Return whether a path is too deep or too long, and count it."""
        beyond = path.count("/") >= DEEPEST or bytes_of(path) > LONGEST_PATH
        if beyond:
            self.count, self.first = self.count + 1, self.first or path
        return beyond

    def report(self) -> None:
        """Log the number of such files and the first of them."""
        if self.count:
            beyond = f"more than {DEEPEST} deep or with paths of more than {LONGEST_PATH} bytes"
            first = ascii(self.first[:200])
            log.warning("%s: left alone %d files or folders, %s; first: %s", self.place, self.count, beyond, first)
