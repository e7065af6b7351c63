"""A landing folder, or a prefix of an object store: new files become messages.

    receive(queue, LandingFolder("/data/landing", "{origin}/*.json"))
    receive(queue, LandingPrefix(fsspec.filesystem("s3"), "bucket/landing", "{origin*}/*.csv", lines=True))

The pattern takes the origin from the path below the folder: `{origin}` is one part of it, `{origin*}` one or more,
`*` and `?` stand for what is within a part, `**` for anything; or say a regular expression with a group `origin`.
A file is a message, or each of its lines is one. It is taken once: its key is its path, its time of change (or the tag
that an object store gives it) and its size. When the queue has it, it is moved below `.received`, or deleted, or kept
where it is, with a receipt below `.received`; what can never be a message is moved below `.refused`, with a note beside
it that says why. Such an error is the file's own: the
run goes on with the others.

The origins take turns, so that the many files of one do not delay the one file of another. Within an origin, files come
in the order of their names. Folders more than 128 deep, and paths of more than 4,096 bytes, are left alone.

Files whose names begin with `.` or `_`, or end in `.tmp`, `.part` and the like, are left alone, and so are those that
changed within the last seconds (`settle`): who writes is best off to write under such a name, and to rename. Nothing
outside of the folder is read or written: links are not followed, and no name leads out of it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, cast

from ..core.errors import InvalidInput, MessageQueueError
from ..core.message import check_seconds
from . import BATCH_BYTES, Arrived, Changed, key_for, log
from .versions import Versions, version_tag, versions_of

RECEIVED, REFUSED = ".received", ".refused"
MOVE, DELETE, KEEP = AFTER = "move", "delete", "keep"
#: Files up to this size are read when they are fetched; of larger ones no more than a piece is ever in memory.
INLINE = 64 << 10
#: A line that is longer is none.
LONGEST_LINE = 64 << 20
#: An origin of 255 bytes has at most 128 parts; a program opens no path of more bytes.
DEEPEST, LONGEST_PATH = 128, 4_096
#: Files that one look holds; what an origin has beyond its part of them comes with the next look.
MOST_FILES = 100_000
#: An origin's turn ends after so many messages or bytes, where other origins wait.
TURN, TURN_BYTES = 500, 4 << 20
#: Bytes of a file's name, and of an object's.
LONGEST_NAME, LONGEST_KEY = 255, 1_024
#: It is gone, or a link leads there now.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".filepart", ".inprogress", ".lock", "~")
_TOKENS = re.compile(r"(\{origin\*?\}|\*\*|\*|\?)")
_MEANS = {"{origin}": "(?P<origin>[^/]+)", "{origin*}": "(?P<origin>.+)", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class NotMoved(MessageQueueError):
    """Files that are in the queue could not be moved out of the landing folder, and would be received again."""


@dataclass(frozen=True)
class Found:
    """A file, as it was when it was found."""

    #: Below the folder, with `/` between its parts.
    path: str
    size: int
    #: Changes when the file does.
    stamp: str
    #: The same and more, for as long as the program runs.
    identity: Any = None


class Place(ABC):
    """Where files land."""

    #: Names the place in keys and for people.
    name: str

    @abstractmethod
    def files(self, settle: float) -> Iterator[Found]:
        """The files that are complete, in the order of their names."""

    @abstractmethod
    def open(self, found: Found) -> IO[bytes]:
        """Open a file; raises `Changed` if it is another one now."""

    @abstractmethod
    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        """Whether an open file is still as it was found."""

    @abstractmethod
    def move(self, found: Found, folder: str) -> str | None:
        """Move a file below a folder of ours, unless it is another one now; tell where it is then."""

    @abstractmethod
    def drop(self, found: Found) -> bool:
        """Delete a file, unless it is another one now; return whether it is gone."""

    @abstractmethod
    def ours(self, folder: str, path: str, suffix: str) -> str:
        """The path below a folder of ours for a file, in as many bytes as a path may have."""

    @abstractmethod
    def note(self, path: str, text: str) -> None:
        """Write a file of ours."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Whether there is such a file of ours."""


def origin_pattern(pattern: str | None, regex: str | None) -> re.Pattern[str]:
    """What takes the origin from a path."""
    if (pattern is None) == (regex is None):
        raise InvalidInput("say either a pattern, like {origin}/*.json, or a regular expression")
    if regex is None:
        parts = _TOKENS.split(str(pattern))
        regex = "".join(_MEANS[part] if part in _MEANS else re.escape(part) for part in parts)
        if sum(part.startswith("{origin") for part in parts) != 1:
            raise InvalidInput(f"a pattern has {{origin}} or {{origin*}} in it, once, and not so {pattern!r}")
    try:
        found = re.compile(regex, re.DOTALL)
    except re.error as error:
        raise InvalidInput(f"this is no regular expression: {error}") from None
    if "origin" not in found.groupindex:
        raise InvalidInput("the regular expression has no group that is called origin: (?P<origin>…)")
    return found


class Landing:
    """New files of a place, as messages."""

    def __init__(
        self, place: Place, pattern: str | None = None, *, regex: str | None = None, lines: bool = False,
        settle: float = 2.0, after: str = "move",
    ) -> None:  # fmt: skip
        """Look at a place.

        :param pattern: takes the origin from a path: `{origin}/*.json`.
        :param regex: the same as a regular expression with a group `origin`, which has to match the whole path.
        :param lines: whether each line of a file is a message, and not the file.
        :param settle: seconds for which a file must not have changed.
        :param after: what becomes of a file that the queue has: `move` it below `.received`, `delete` it, or `keep` it
            where it is, and write a receipt below `.received`.
        """
        self.place, self.lines, self.after = place, lines, after
        self._pattern = origin_pattern(pattern, regex)
        if after not in AFTER:
            raise InvalidInput(f"after is {' or '.join(map(repr, AFTER))}, not {after!r}")
        self.settle = check_seconds(settle, "settle")
        self._source: Iterator[Arrived] | None = None
        #: The file of what was fetched, and whether it is whole in the queue once this message is.
        self._of: dict[str, tuple[Found, bool]] = {}
        #: Files that are not looked at again: they were refused, are left for a later run, or cannot be moved.
        self._done: set[str] = set()
        #: Files that were looked at since all were.
        self._seen: set[Found] = set()
        self._moved = self._not_moved = 0
        self._why_not = ""
        #: Files that the pattern does not match, in this look at the place, and the first of them.
        self.unmatched, self.first_unmatched = 0, ""

    def fetch(self, most: int) -> Sequence[Arrived]:
        """The next messages; none when all files were looked at. The call after that looks anew."""
        if self._source is None:
            self._source = self._arrivals()
        arrived: list[Arrived] = []
        size = 0
        while len(arrived) < most and size < BATCH_BYTES:
            one = next(self._source, None)
            if one is None:
                break
            arrived.append(one)
            size += one.size
        if not arrived:
            self._source = None
            self._report_not_moved()
        return arrived

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """Move, or delete, the files that are whole in the queue."""
        for one in arrived:
            found, is_last = self._of.pop(one.key)
            if is_last and found.path not in self._done:
                self._put_away(found)

    def _put_away(self, found: Found) -> None:
        try:
            gone = self._out(found)
        except OSError as error:
            self._done.add(found.path)
            self._not_moved, self._why_not = self._not_moved + 1, str(error)
            log.error("%s is in the queue and cannot be moved out of the landing folder: %s", ascii(found.path), error)
            return
        if gone:
            self._moved += 1
        else:
            log.warning("%s changed after it was received; it is received again as it is then", ascii(found.path))

    def _out(self, found: Found) -> bool:
        """Move or delete a file, or write its receipt; return whether it was still the one that was received."""
        if self.after == DELETE:
            return self.place.drop(found)
        if self.after == MOVE:
            return self.place.move(found, RECEIVED) is not None
        self.place.note(self._receipt(found, RECEIVED), f"{_text(found.path)}@{found.stamp}\n")
        return True

    def _receipt(self, found: Found, folder: str) -> str:
        """Where it says that this version of a file was received, or refused."""
        return self.place.ours(folder, found.path, f".{_short(found)}{'.why' if folder == REFUSED else ''}")

    def _is_known(self, found: Found) -> bool:
        """Whether a file that is kept where it is was received, or refused, before."""
        return any(self.place.has(self._receipt(found, folder)) for folder in (RECEIVED, REFUSED))

    def _report_not_moved(self) -> None:
        """Raise an error if no file at all could be moved: then the place is at fault, and not a file."""
        count, moved = self._not_moved, self._moved
        self._not_moved = self._moved = 0
        if count and not moved:
            raise NotMoved(
                f"none of {count:,} received files could be moved out of {self.place.name!r} ({self._why_not}): after "
                "the ring's key_window they would be received again; grant the right to rename and delete there, and "
                "run again"
            )

    def refuse(self, arrived: Arrived, why: str) -> None:
        """Move a file below `.refused`, with a note that says why."""
        found, _ = self._of.pop(arrived.key)
        if found.path in self._done:
            return
        self._done.add(found.path)
        try:
            note = f"{arrived.place}: {why}\n"
            if self.after == KEEP:
                self.place.note(self._receipt(found, REFUSED), note)
            elif (where := self.place.move(found, REFUSED)) is not None:
                self.place.note(f"{where}.why", note)
        except OSError as error:
            log.error("%s cannot be moved below %s: %s", ascii(found.path), REFUSED, error)

    def skip(self, arrived: Arrived, why: str) -> None:
        """Leave a file for a later run."""
        found, _ = self._of.pop(arrived.key)
        self._done.add(found.path)

    def close(self) -> None:
        """Nothing is held open between two calls but a file that is read by lines."""
        if isinstance(self._source, Iterator) and hasattr(self._source, "close"):
            self._source.close()
        self._source = None

    def _arrivals(self) -> Iterator[Arrived]:
        """The messages of one look, or of several where a look does not hold all files; the origins take turns."""
        while True:
            looked = self._look()
            waiting = deque(deque(_Reading(found, origin) for found in files) for origin, files in looked.by_origin())
            while waiting:
                files = waiting.popleft()
                yield from self._turn(files, alone=not waiting)
                if files:
                    waiting.append(files)
            if not looked.is_partial:
                self._seen = set()
                return

    def _look(self) -> _Look:
        """The files that are new since the first look."""
        self.unmatched, self.first_unmatched = 0, ""
        looked, still = _Look(), set()
        for found in self.place.files(self.settle):
            matched = self._pattern.fullmatch(found.path)
            if matched is None:
                self.first_unmatched = self.first_unmatched or found.path
                self.unmatched += 1
            elif found in self._seen:
                still.add(found)
            elif found.path not in self._done:
                looked.add(matched["origin"], found)
        self._seen = still
        return looked

    def _turn(self, files: deque[_Reading], alone: bool) -> Iterator[Arrived]:
        """An origin's messages until its turn ends; what it did not get to stays in `files`."""
        count = size = 0
        while files and (alone or (count < TURN and size < TURN_BYTES)):
            reading = files[0]
            with closing(self._of_file(reading)) as arrivals:
                for one in arrivals:
                    count, size = count + 1, size + one.size
                    yield one
                    if not alone and (count >= TURN or size >= TURN_BYTES):
                        break
                else:
                    reading.is_done = True
            if reading.is_done:
                files.popleft()
                self._seen.add(reading.found)

    def _of_file(self, reading: _Reading) -> Generator[Arrived, None, None]:
        found = reading.found
        if found.path in self._done or (self.after == KEEP and not reading.number and self._is_known(found)):
            return
        try:
            if self.lines:
                yield from self._lines(reading)
            else:
                reading.is_done = True
                yield self._whole(found, reading.origin)
        except (Changed, FileNotFoundError):
            log.info("%s changed while it was read; it is left for the next time", ascii(found.path))
        except PermissionError as error:
            key = self._key(found)
            self._of[key] = found, True
            yield Arrived(key, reading.origin, b"", found.path, unfit=f"it cannot be read: {error.strerror}", size=1)

    def _key(self, found: Found, *more: str) -> str:
        return key_for("landing", self.place.name, found.path + "@" + found.stamp, *more)

    def _whole(self, found: Found, origin: str) -> Arrived:
        key = self._key(found)
        payload, content = None, None
        if found.size <= INLINE:
            with self._content(found, 0, found.size) as file:
                payload = file.read()
        else:
            content = lambda: self._content(found, 0, found.size)  # noqa: E731
        self._of[key] = found, True
        headers = {"path": _text(found.path)}
        return Arrived(key, origin, payload, found.path, headers, content, found.size, replaceable=True)

    def _content(self, found: Found, start: int, length: int) -> IO[bytes]:
        """A stretch of a file; reading it raises `Changed` if the file is another one at its end."""
        file = self.place.open(found)
        is_whole = length == found.size
        return cast("IO[bytes]", _Stretch(file, start, length, is_whole, lambda: self.place.is_same(found, file)))

    def _lines(self, reading: _Reading) -> Iterator[Arrived]:
        found = reading.found
        with self.place.open(found) as file, _changed_meanwhile(lambda: self.place.is_same(found, file)):
            file.seek(reading.offset)
            for line in _read_lines(file, reading):
                if found.path in self._done:
                    return
                if not line.length:
                    continue
                before, reading.waiting = reading.waiting, self._line(reading, line)
                if before is not None:
                    self._of[before.key] = found, False
                    yield before
                if reading.waiting.unfit:
                    break
            if not self.place.is_same(found, file):
                raise Changed()
            last = reading.waiting or self._line(reading, _Line(1, 0, 0, b""))
            reading.is_done = True
            self._of[last.key] = found, True
            yield last

    def _line(self, reading: _Reading, line: _Line) -> Arrived:
        found = reading.found
        place = f"{found.path}:{line.number}"
        unfit, content = None, None
        if line.length > LONGEST_LINE:
            unfit = f"line {line.number:,} is longer than {LONGEST_LINE:,} bytes; the lines before it are in the queue"
        if line.data is None:
            content = lambda: self._content(found, line.start, line.length)  # noqa: E731
        headers = {"path": _text(found.path), "line": str(line.number)}
        key = self._key(found, str(line.number))
        return Arrived(
            key, reading.origin, line.data, place, headers, content, line.length, unfit, replaceable=True
        )  # fmt: skip


class _Look:
    """The files of a look by origin: of each the first by name, together no more than `MOST_FILES`."""

    def __init__(self) -> None:
        self._files: dict[str, list[Found]] = {}
        #: The first path of an origin that this look does not hold any more.
        self._until: dict[str, str] = {}
        self._count = 0
        self.is_partial = False

    def add(self, origin: str, found: Found) -> None:
        """Hold a file, if there is room before what was dropped of its origin."""
        until = self._until.get(origin)
        full = origin not in self._files and len(self._files) >= MOST_FILES
        if full or (until is not None and found.path >= until):
            self.is_partial = True
            return
        self._files.setdefault(origin, []).append(found)
        self._count += 1
        if self._count > MOST_FILES:
            self._trim()

    def _trim(self) -> None:
        """Drop the last files of those origins that have the most; each keeps at least one."""
        most = max(1, MOST_FILES // (2 * len(self._files)))
        for origin, files in self._files.items():
            if len(files) > most:
                files.sort(key=_path)
                self._until[origin] = files[most].path
                self._count -= len(files) - most
                del files[most:]
                self.is_partial = True

    def by_origin(self) -> list[tuple[str, list[Found]]]:
        """The origins by their names, with their files by theirs."""
        return [(origin, sorted(self._files[origin], key=_path)) for origin in sorted(self._files)]


def _path(found: Found) -> str:
    return found.path


@dataclass
class _Reading:
    """A file, and how far its lines were read."""

    found: Found
    origin: str
    offset: int = 0
    number: int = 0
    #: A line that was read, of which only the next one tells whether it is the last.
    waiting: Arrived | None = None
    is_done: bool = False


@dataclass(frozen=True)
class _Line:
    """A line without its end; of a long one only where it is."""

    number: int
    start: int
    length: int
    data: bytes | None


def _read_lines(file: IO[bytes], reading: _Reading) -> Iterator[_Line]:
    """The lines from where reading stopped. No more than `INLINE` bytes of one are ever in memory."""
    while piece := file.readline(INLINE + 2):
        start, reading.number = reading.offset, reading.number + 1
        data, read, last = piece, len(piece), piece[-2:]
        while not piece.endswith(b"\n") and read <= LONGEST_LINE + 2 and (piece := file.readline(INLINE)):
            data, read, last = b"", read + len(piece), (last + piece)[-2:]
        reading.offset += read
        ends = _ending(last)
        yield _Line(reading.number, start, read - ends, data[: len(data) - ends] if len(data) == read else None)


def _ending(last: bytes) -> int:
    """Return the length of the line ending, given the last two bytes of a line."""
    return 2 if last == b"\r\n" else int(last.endswith(b"\n"))


@contextmanager
def _changed_meanwhile(is_same: Callable[[], bool]) -> Iterator[None]:
    """Raise `Changed` where reading fails for a file that is another one by now, or gone."""
    try:
        yield
    except OSError as error:
        if is_same():
            raise
        raise Changed() from error


class _Stretch:
    """A stretch of an open file, to read from once or twice."""

    def __init__(self, file: IO[bytes], start: int, length: int, is_whole: bool, is_same: Callable[[], bool]) -> None:
        self._file, self._start, self._length, self._is_whole, self._is_same = file, start, length, is_whole, is_same
        self._place = 0
        if start:
            file.seek(start)

    def read(self, most: int = -1) -> bytes:
        """The next bytes; raises `Changed` at the end if the file is another one now."""
        left = self._length - self._place
        wanted = left if most < 0 else min(most, left)
        data = b""
        with _changed_meanwhile(self._is_same):
            while len(data) < wanted:
                more = self._file.read(wanted - len(data))
                if not more:
                    raise Changed()
                data += more
        self._place += len(data)
        if self._place == self._length and not self._is_unchanged():
            raise Changed()
        return data

    def _is_unchanged(self) -> bool:
        return self._is_same() and not (self._is_whole and self._file.read(1))

    def seekable(self) -> bool:
        """Whether it can be read twice."""
        return self._file.seekable()

    def tell(self) -> int:
        """The place in the stretch."""
        return self._place

    def seek(self, place: int) -> int:
        """Go to a place in the stretch."""
        self._file.seek(self._start + place)
        self._place = place
        return place

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> _Stretch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _text(path: str) -> str:
    """A path as text, whatever its bytes are."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_left_alone(name: str) -> bool:
    return name.startswith(_HIDDEN) or name.lower().endswith(_UNFINISHED)


# -- a folder --


class LocalPlace(Place):
    """A folder of this machine. It is walked from part to part, so that no link leads out of it, at whatever moment."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.realpath(folder)
        self.name = self.folder
        if not os.path.isdir(self.folder):
            raise InvalidInput(f"there is no folder {os.fspath(folder)!r} to look at")

    def files(self, settle: float) -> Iterator[Found]:
        """The files that are complete, and not too deep."""
        waiting, left = [""], _LeftAlone(self.name)
        while waiting:
            prefix = waiting.pop()
            try:
                with self._parent(f"{prefix}x") as (folder, _), os.scandir(folder) as entries:
                    for entry in entries:
                        path = f"{prefix}{entry.name}"
                        if _is_left_alone(entry.name) or left.is_beyond(path):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(f"{path}/")
                        elif entry.is_file(follow_symlinks=False):
                            yield from self._complete(path, entry, settle)
            except OSError as error:
                log.warning("the folder %s cannot be read: %s", ascii(prefix), error.strerror)
        left.report()

    @staticmethod
    def _complete(path: str, entry: os.DirEntry[str], settle: float) -> Iterator[Found]:
        with suppress(FileNotFoundError):
            about = entry.stat(follow_symlinks=False)
            if not settle or time.time() - about.st_ctime >= settle:
                yield Found(path, about.st_size, f"{about.st_mtime_ns}+{about.st_size}", _identity(about))

    @contextmanager
    def _parent(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of a file, opened part by part, and the file's own name."""
        *folders, name = path.split("/")
        if any(part in ("", ".", "..") for part in (*folders, name)):
            raise InvalidInput(f"{path!r} leads out of its folder")
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder, name
        finally:
            os.close(folder)

    def open(self, found: Found) -> IO[bytes]:
        """Open a file; raises `Changed` if it is another one now."""
        try:
            with self._parent(found.path) as (folder, name):
                file = os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb")
        except PermissionError:
            raise
        except OSError as error:
            raise Changed() from error
        if not self.is_same(found, file):
            file.close()
            raise Changed()
        return file

    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        """Whether an open file is still as it was found."""
        return bool(_identity(os.fstat(file.fileno())) == found.identity)

    def move(self, found: Found, folder: str) -> str | None:
        """Move a file below a folder of ours, unless it is another one now; tell where it is then."""
        try:
            with self._parent(found.path) as (here, name):
                if not _is_at(name, here, found):
                    return None
                with self._kept(folder, found.path) as (there, parent):
                    kept = name if not _exists(name, there) else _shortened(name, f".{_short(found)}", LONGEST_NAME)
                    return f"{parent}{kept}" if self._rename(found, here, name, there, kept) else None
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    @contextmanager
    def _kept(self, folder: str, path: str) -> Iterator[tuple[int, str]]:
        """The folder of ours for a file, and its path: the folder above where a file bears the name of one below."""
        parent = f"{folder}/{path.rpartition('/')[0]}".rstrip("/") + "/"
        with ExitStack() as held:
            while True:
                try:
                    there, _ = held.enter_context(self._parent(f"{parent}x", make=True))
                except NotADirectoryError:
                    if parent == f"{folder}/":
                        raise PermissionError(errno.EPERM, f"{folder!r} is no folder") from None
                    parent = parent.rstrip("/").rpartition("/")[0] + "/"
                    continue
                break
            yield there, parent

    @staticmethod
    def _rename(found: Found, here: int, name: str, there: int, kept: str) -> bool:
        os.rename(name, kept, src_dir_fd=here, dst_dir_fd=there)
        if not _is_at(kept, there, found) and not _exists(name, here):
            # Somebody put another file in its place at that very moment: that one is still to be received.
            os.rename(kept, name, src_dir_fd=there, dst_dir_fd=here)
            return False
        return True

    def drop(self, found: Found) -> bool:
        """Delete a file, unless it is another one now; return whether it is gone."""
        where = self.move(found, RECEIVED)
        if where is None:
            return False
        with suppress(FileNotFoundError), self._parent(where) as (folder, name):
            os.unlink(name, dir_fd=folder)
        return True

    def ours(self, folder: str, path: str, suffix: str) -> str:
        """The path below a folder of ours for a file, in as many bytes as a path may have."""
        parent, _, name = path.rpartition("/")
        return f"{folder}/{parent}{'/' if parent else ''}{_shortened(name, suffix, LONGEST_NAME)}"

    def has(self, path: str) -> bool:
        """Whether there is such a file of ours."""
        try:
            with self._parent(path) as (folder, name):
                return _exists(name, folder)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise

    def note(self, path: str, text: str) -> None:
        """Write a file of ours."""
        with self._parent(path, make=True) as (folder, long):
            name = _shortened(long, "", LONGEST_NAME)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "w", errors="backslashreplace") as file:
                file.write(text)


def _identity(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_ino, about.st_mtime_ns, about.st_size


def _is_at(name: str, folder: int, found: Found) -> bool:
    try:
        return bool(_identity(os.stat(name, dir_fd=folder, follow_symlinks=False)) == found.identity)
    except FileNotFoundError:
        return False


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _short(found: Found) -> str:
    return _digest(f"{found.path}@{found.stamp}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _shortened(name: str, suffix: str, most: int) -> str:
    """A name with a suffix, in so many bytes; of one that is too long a part, with a hash of all of it."""
    if _bytes(name + suffix) <= most:
        return name + suffix
    suffix = f"~{_digest(name)}{suffix}"
    end = ".why" if name.endswith(".why") else ""
    cut = name.encode("utf-8", "surrogateescape")[: most - _bytes(suffix + end)].decode("utf-8", "surrogateescape")
    # A character that was cut through is no text any more.
    return re.sub("[\udc80-\udcff]{1,3}$", "", cut) + suffix + end


class _LeftAlone:
    """Files that lie too deep, or have too long a path, to be looked at: counted, and reported once."""

    def __init__(self, place: str) -> None:
        self.place, self.count, self.first = place, 0, ""

    def is_beyond(self, path: str) -> bool:
        """Whether a path is too deep, or too long."""
        beyond = path.count("/") >= DEEPEST or _bytes(path) > LONGEST_PATH
        if beyond:
            self.count, self.first = self.count + 1, self.first or path
        return beyond

    def report(self) -> None:
        """Log what was left alone."""
        if self.count:
            log.warning(
                "%s: left alone %d files or folders, more than %d deep or with paths of more than %d bytes; the first "
                "is %s",
                self.place, self.count, DEEPEST, LONGEST_PATH, ascii(self.first[:200]),
            )  # fmt: skip


class LandingFolder(Landing):
    """New files of a folder of this machine, as messages."""

    def __init__(self, folder: str | os.PathLike[str], pattern: str | None = None, **how: Any) -> None:
        super().__init__(LocalPlace(folder), pattern, **how)


# -- an object store --


class ObjectPlace(Place):
    """A prefix of an object store, through a file system of `fsspec`. What is there is complete when it is seen."""

    def __init__(self, files: Any, prefix: str, name: str | None = None, versions: Versions | None = None) -> None:
        self.fs, self.prefix = files, str(files._strip_protocol(prefix)).rstrip("/")
        #: How one version of an object is deleted; none, where nothing is.
        self.versions = versions
        protocol = files.protocol if isinstance(files.protocol, str) else files.protocol[0]
        self.name = name or f"{protocol}://{self.prefix.lstrip('/')}"

    def files(self, settle: float) -> Iterator[Found]:
        """The files that are complete, in the order of their names."""
        self.fs.invalidate_cache()
        waiting, left = [self.prefix], _LeftAlone(self.name)
        while waiting:
            folder = waiting.pop()
            try:
                entries = self.fs.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for about in entries:
                below = about["name"][len(self.prefix) :].strip("/")
                if self._is_folder_itself(about, folder) or left.is_beyond(below):
                    continue
                if about.get("type") == "directory":
                    waiting.append(about["name"].rstrip("/"))
                elif about.get("type", "file") == "file" and not about.get("islink"):
                    yield Found(below, int(about.get("size") or 0), version_tag(about))
        left.report()

    @staticmethod
    def _is_folder_itself(about: Any, folder: str) -> bool:
        """Whether an entry is the folder that was listed, or one that is left alone."""
        path = about["name"].rstrip("/")
        name = path.rpartition("/")[2]
        return path == folder.rstrip("/") or name in ("", "..") or _is_left_alone(name)

    def open(self, found: Found) -> IO[bytes]:
        """Open a file; raises `Changed` if it is another one now."""
        if not self._is_there(found):
            raise Changed()
        file = self.fs.open(self._full(found.path), "rb")
        # A file in memory is one for all who open it; those of other stores read no line of limited length.
        return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else io.BufferedReader(file)

    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        """Whether an open file is still as it was found."""
        return self._is_there(found)

    def move(self, found: Found, folder: str) -> str | None:
        """Move a file below a folder of ours, unless it is another one now; tell where it is then."""
        versions = self._versions()
        to = self.ours(folder, found.path, "")
        if self.fs.exists(self._full(to)):
            to = self.ours(folder, found.path, f".{_short(found)}")
        self.fs.makedirs(self._full(to).rpartition("/")[0], exist_ok=True)
        copied = versions.copy(self._full(found.path), found.stamp, self._full(to))
        # The copy stays where the object is another version now: another reader may have made it, too.
        return to if copied and versions.delete(self._full(found.path), found.stamp) else None

    def _versions(self) -> Versions:
        if self.versions is None:
            raise InvalidInput("objects are neither moved nor deleted here: after='keep'")
        return self.versions

    def ours(self, folder: str, path: str, suffix: str) -> str:
        """The path below a folder of ours for a file, in as many bytes as a path may have."""
        return _shortened(f"{folder}/{path}", suffix, LONGEST_KEY - _bytes(f"{self.prefix}/.why"))

    def has(self, path: str) -> bool:
        """Whether there is such a file of ours."""
        return bool(self.fs.exists(self._full(path)))

    def drop(self, found: Found) -> bool:
        """Delete a file, unless it is another one now; return whether it is gone."""
        return self._versions().delete(self._full(found.path), found.stamp)

    def note(self, path: str, text: str) -> None:
        """Write a file of ours."""
        self.fs.pipe_file(self._full(path), text.encode("utf-8", "backslashreplace"))

    def _full(self, path: str) -> str:
        return f"{self.prefix}/{path}"

    def _is_there(self, found: Found) -> bool:
        self.fs.invalidate_cache()
        try:
            about = self.fs.info(self._full(found.path))
        except FileNotFoundError:
            return False
        return int(about.get("size") or 0) == found.size and version_tag(about) == found.stamp


class LandingPrefix(Landing):
    """New files below a prefix of an object store, as messages.

    A store that others write to is told to delete the version that was received, and no other. Where no way is known to
    do that, or the store does not, `move` and `delete` are refused.
    """

    def __init__(
        self, files: Any, prefix: str, pattern: str | None = None, *, name: str | None = None,
        versions: Versions | None = None, after: str = MOVE, **how: Any,
    ) -> None:  # fmt: skip
        protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
        # A folder by its address is a folder still, with links that lead out of it.
        local = "file" in protocols
        place = LocalPlace(files._strip_protocol(prefix)) if local else ObjectPlace(files, prefix, name, versions)
        super().__init__(place, pattern, after=after, **how)
        if isinstance(place, ObjectPlace) and after != KEEP and versions is None:
            place.versions = versions_of(files, place.prefix)
