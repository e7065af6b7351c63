"""Lines and stretches of landing files, read with bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING
from zlib import crc32

from .. import Changed

if TYPE_CHECKING:
    from .place import Found

#: Files up to this size are read when they are fetched; of larger ones at most a piece is in memory.
INLINE = 64 << 10
#: Length of the longest line that is a message.
LONGEST_LINE = 64 << 20


@dataclass
class Reading:
    """A file, and how far its lines were read."""

    found: Found
    origin: str
    offset: int = 0
    number: int = 0
    #: Checksum of what was read.
    check: int = 0
    #: The latest line; the next one shows whether it is the last of the file.
    waiting: Line | None = None
    is_done: bool = False
    #: Marks of the last line that was fetched, that is stored in the queue, and that an earlier run noted. No line
    #: counts as stored in a file that is put away or has another version now.
    fetched: str = ""
    stored: str | None = ""
    noted: str = ""


@dataclass(frozen=True)
class Line:
    """A line without its line ending, or a whole file with the number 0; of a long one only its position."""

    number: int
    start: int
    length: int
    data: bytes | None
    #: Number of the line, and checksum of the file up to its end: names the line in a note.
    mark: str = ""

    @property
    def unfit(self) -> str | None:
        """Reason why the line cannot be a message."""
        if not self.number or self.length <= LONGEST_LINE:
            return None
        return f"line {self.number:,} is longer than {LONGEST_LINE:,} bytes; the lines before it are in the queue"


def read_lines(file: IO[bytes], reading: Reading) -> Iterator[Line]:
    """Yield the lines from where reading stopped, with at most `INLINE` bytes of one in memory."""
    while piece := file.readline(INLINE + 2):
        start, reading.number, reading.check = reading.offset, reading.number + 1, crc32(piece, reading.check)
        data, read, last = piece, len(piece), piece[-2:]
        while not piece.endswith(b"\n") and read <= LONGEST_LINE + 2 and (piece := file.readline(INLINE)):
            data, read, last = b"", read + len(piece), (last + piece)[-2:]
            reading.check = crc32(piece, reading.check)
        reading.offset += read
        ends = _ending(last)
        content = data[: len(data) - ends] if len(data) == read else None
        yield Line(reading.number, start, read - ends, content, f"{reading.number} {reading.check}")


def _ending(last: bytes) -> int:
    """Return the length of the line ending, given the last two bytes of a line."""
    return 2 if last == b"\r\n" else int(last.endswith(b"\n"))


@contextmanager
def changed_meanwhile(is_same: Callable[[], bool]) -> Iterator[None]:
    """Raise `Changed` if reading fails because the file has another version now, or was removed."""
    try:
        yield
    except OSError as error:
        if is_same():
            raise
        raise Changed() from error


class Stretch:
    """A stretch of an open file, readable once or twice; raises `Changed` at its end if the file changed."""

    def __init__(self, file: IO[bytes], start: int, length: int, is_whole: bool, is_same: Callable[[], bool]) -> None:
        self._file, self._start, self._length, self._is_whole, self._is_same = file, start, length, is_whole, is_same
        self._place = 0
        if start:
            file.seek(start)

    def read(self, most: int = -1) -> bytes:
        """Return the next bytes; raise `Changed` at the end if the file has another version now."""
        left = self._length - self._place
        wanted = left if most < 0 else min(most, left)
        data = b""
        with changed_meanwhile(self._is_same):
            while len(data) < wanted:
                more = self._file.read(wanted - len(data))
                if not more:
                    raise Changed()
                data += more
        self._place += len(data)
        if self._place == self._length and (not self._is_same() or (self._is_whole and self._file.read(1))):
            raise Changed()
        return data

    def seekable(self) -> bool:
        """Return whether it can be read twice."""
        return self._file.seekable()

    def tell(self) -> int:
        return self._place

    def seek(self, place: int) -> int:
        self._file.seek(self._start + place)
        self._place = place
        return place

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Stretch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
