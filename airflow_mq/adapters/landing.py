"""A landing folder, or a prefix of an object store: new files become messages.

    receive(queue, LandingFolder("/data/landing", "{origin}/*.json"))
    receive(queue, LandingPrefix(fsspec.filesystem("s3"), "bucket/landing", "{origin*}/*.csv", lines=True))

The pattern takes the origin from the path below the folder: `{origin}` is one part of it, `{origin*}` one or more,
`*` and `?` stand for what is within a part, `**` for anything; or say a regular expression with a group `origin`.
A file is a message, or each of its lines is one. It is taken once: its key is its path, its time of change (or the tag
that an object store gives it) and its size. When the queue has it, it is moved below `.received`, or deleted; what can
never be a message is moved below `.refused`, with a note beside it that says why.

Files whose names begin with `.` or `_`, or end in `.tmp`, `.part` and the like, are left alone, and so are those that
changed within the last seconds (`settle`): who writes is best off to write under such a name, and to rename. Nothing
outside of the folder is read or written: links are not followed, and no name leads out of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import IO, Any

from ..core.errors import InvalidInput
from ..core.message import check_seconds
from . import Arrived, key_for, log

RECEIVED, REFUSED = ".received", ".refused"
AFTER = ("move", "delete")
#: Files up to this size are read when they are fetched; of larger ones no more than a piece is ever in memory.
INLINE = 64 << 10
#: A line that is longer is none.
LONGEST_LINE = 64 << 20
#: It is gone, or a link leads there now.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".filepart", ".inprogress", ".lock", "~")
_TOKENS = re.compile(r"(\{origin\*?\}|\*\*|\*|\?)")
_MEANS = {"{origin}": "(?P<origin>[^/]+)", "{origin*}": "(?P<origin>.+)", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Changed(Exception):
    """The file is not the one any more that was found."""


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
    def remove(self, path: str) -> None:
        """Remove a file of ours."""

    @abstractmethod
    def note(self, path: str, text: str) -> None:
        """Write a file of ours."""


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
        :param after: what becomes of a file that the queue has: `move` it below `.received`, or `delete` it.
        """
        self.place, self.lines, self.after = place, lines, after
        self._pattern = origin_pattern(pattern, regex)
        if after not in AFTER:
            raise InvalidInput(f"after is {' or '.join(map(repr, AFTER))}, not {after!r}")
        self.settle = check_seconds(settle, "settle")
        self._source: Iterator[Arrived] | None = None
        #: The file of what was fetched, and whether it is whole in the queue once this message is.
        self._of: dict[str, tuple[Found, bool]] = {}
        self._refused: set[str] = set()
        #: Files that the pattern does not match, in this look at the place, and the first of them.
        self.unmatched, self.first_unmatched = 0, ""

    def fetch(self, most: int) -> Sequence[Arrived]:
        """The next messages; none when all files were looked at. The call after that looks anew."""
        if self._source is None:
            self._source = self._arrivals()
        arrived = list(islice(self._source, most))
        if not arrived:
            self._source = None
        return arrived

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """Move, or delete, the files that are whole in the queue."""
        for one in arrived:
            found, is_last = self._of.pop(one.key)
            if not is_last or found.path in self._refused:
                continue
            where = self.place.move(found, RECEIVED)
            if where is None:
                log.warning("%s changed after it was received; it is received again as it is then", ascii(found.path))
            elif self.after == "delete":
                self.place.remove(where)

    def refuse(self, arrived: Arrived, why: str) -> None:
        """Move a file below `.refused`, with a note that says why."""
        found, _ = self._of.pop(arrived.key)
        if found.path in self._refused:
            return
        self._refused.add(found.path)
        where = self.place.move(found, REFUSED)
        if where is not None:
            self.place.note(f"{where}.why", f"{arrived.place}: {why}\n")

    def close(self) -> None:
        """Nothing is held open between two calls but a file that is read by lines."""
        if isinstance(self._source, Iterator) and hasattr(self._source, "close"):
            self._source.close()
        self._source = None

    def _arrivals(self) -> Iterator[Arrived]:
        self.unmatched, self.first_unmatched = 0, ""
        for found in self.place.files(self.settle):
            matched = self._pattern.fullmatch(found.path)
            if matched is None:
                self.first_unmatched = self.first_unmatched or found.path
                self.unmatched += 1
            if matched is None or found.path in self._refused:
                continue
            origin = matched["origin"]
            try:
                if self.lines:
                    yield from self._lines(found, origin)
                else:
                    yield self._whole(found, origin)
            except (Changed, FileNotFoundError):
                log.info("%s changed while it was read; it is left for the next time", ascii(found.path))

    def _key(self, found: Found, *more: str) -> str:
        return key_for("landing", self.place.name, found.path + "@" + found.stamp, *more)

    def _whole(self, found: Found, origin: str) -> Arrived:
        key = self._key(found)
        payload, content = None, None
        if found.size <= INLINE:
            with self.place.open(found) as file:
                payload = file.read(INLINE + 1)
                if len(payload) != found.size or not self.place.is_same(found, file):
                    raise Changed()
        else:
            content = lambda: self.place.open(found)  # noqa: E731
        self._of[key] = found, True
        return Arrived(key, origin, payload, found.path, {"path": _text(found.path)}, content, found.size)

    def _lines(self, found: Found, origin: str) -> Iterator[Arrived]:
        with self.place.open(found) as file:
            waiting: Arrived | None = None
            for number, line in enumerate(_read_lines(file), start=1):
                if found.path in self._refused:
                    return
                if not line:
                    continue
                if waiting is not None:
                    self._of[waiting.key] = found, False
                    yield waiting
                waiting = self._line(found, origin, number, line)
                if waiting.unfit:
                    break
            if not self.place.is_same(found, file):
                raise Changed()
            if waiting is None:
                waiting = self._line(found, origin, 1, b"")
            self._of[waiting.key] = found, True
            yield waiting

    def _line(self, found: Found, origin: str, number: int, line: bytes) -> Arrived:
        place = f"{found.path}:{number}"
        unfit = None
        if len(line) > LONGEST_LINE:
            unfit = f"line {number:,} is longer than {LONGEST_LINE:,} bytes; the lines before it are in the queue"
        headers = {"path": _text(found.path), "line": str(number)}
        return Arrived(self._key(found, str(number)), origin, line, place, headers, None, len(line), unfit)


def _text(path: str) -> str:
    """A path as text, whatever its bytes are."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _read_lines(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE + 2):
        yield line.rstrip(b"\r\n")


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
        """The files that are complete, in the order of their names."""
        root = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield from self._below(root, "", settle)
        finally:
            os.close(root)

    def _below(self, folder: int, prefix: str, settle: float) -> Iterator[Found]:
        for name in sorted(os.listdir(folder)):
            if _is_left_alone(name):
                continue
            try:
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(about.st_mode):
                with suppress(OSError), self._opened(name, folder) as below:
                    yield from self._below(below, f"{prefix}{name}/", settle)
            elif stat.S_ISREG(about.st_mode) and (not settle or time.time() - about.st_ctime >= settle):
                yield Found(f"{prefix}{name}", about.st_size, f"{about.st_mtime_ns}+{about.st_size}", _identity(about))

    @contextmanager
    def _opened(self, name: str, folder: int) -> Iterator[int]:
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            yield below
        finally:
            os.close(below)

    @contextmanager
    def _parent(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of a file, opened part by part, and the file's own name."""
        *folders, name = path.split("/")
        if any(part in ("", ".", "..") for part in (*folders, name)):
            raise InvalidInput(f"{path!r} leads out of its folder")
        opened = [os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)]
        try:
            for part in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=opened[-1])
                opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
            yield opened[-1], name
        finally:
            for one in opened:
                os.close(one)

    def open(self, found: Found) -> IO[bytes]:
        """Open a file; raises `Changed` if it is another one now."""
        try:
            with self._parent(found.path) as (folder, name):
                file = os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb")
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
        to = f"{folder}/{found.path}"
        try:
            with self._parent(found.path) as (here, name), self._parent(to, make=True) as (there, _):
                if not _is_at(name, here, found):
                    return None
                kept = name if not _exists(name, there) else f"{name[:150]}.{_short(found)}"
                os.rename(name, kept, src_dir_fd=here, dst_dir_fd=there)
                if not _is_at(kept, there, found) and not _exists(name, here):
                    # Somebody put another file in its place at that very moment: that one is still to be received.
                    os.rename(kept, name, src_dir_fd=there, dst_dir_fd=here)
                    return None
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        return f"{to[: len(to) - len(name)]}{kept}"

    def remove(self, path: str) -> None:
        """Remove a file of ours."""
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def note(self, path: str, text: str) -> None:
        """Write a file of ours."""
        with self._parent(path, make=True) as (folder, name):
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
    return hashlib.sha256(f"{found.path}@{found.stamp}".encode("utf-8", "surrogateescape")).hexdigest()[:12]


class LandingFolder(Landing):
    """New files of a folder of this machine, as messages."""

    def __init__(self, folder: str | os.PathLike[str], pattern: str | None = None, **how: Any) -> None:
        super().__init__(LocalPlace(folder), pattern, **how)


# -- an object store --


class ObjectPlace(Place):
    """A prefix of an object store, through a file system of `fsspec`. What is there is complete when it is seen."""

    def __init__(self, files: Any, prefix: str, name: str | None = None) -> None:
        self.fs, self.prefix = files, str(files._strip_protocol(prefix)).rstrip("/")
        protocol = files.protocol if isinstance(files.protocol, str) else files.protocol[0]
        self.name = name or f"{protocol}://{self.prefix.lstrip('/')}"

    def files(self, settle: float) -> Iterator[Found]:
        """The files that are complete, in the order of their names."""
        self.fs.invalidate_cache()
        for path, about in sorted(self.fs.find(self.prefix, detail=True).items()):
            below = path[len(self.prefix) :].lstrip("/")
            parts = below.split("/")
            if any(part in ("", ".", "..") or _is_left_alone(part) for part in parts):
                continue
            if about.get("type", "file") == "file" and not about.get("islink"):
                yield Found(below, int(about.get("size") or 0), _tag(about))

    def open(self, found: Found) -> IO[bytes]:
        """Open a file; raises `Changed` if it is another one now."""
        if not self._is_there(found):
            raise Changed()
        file: IO[bytes] = self.fs.open(self._full(found.path), "rb")
        return file

    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        """Whether an open file is still as it was found."""
        return self._is_there(found)

    def move(self, found: Found, folder: str) -> str | None:
        """Move a file below a folder of ours, unless it is another one now; tell where it is then."""
        if not self._is_there(found):
            return None
        to = f"{folder}/{found.path}"
        if self.fs.exists(self._full(to)):
            to += f".{_short(found)}"
        self.fs.makedirs(self._full(to).rpartition("/")[0], exist_ok=True)
        self.fs.mv(self._full(found.path), self._full(to))
        return to

    def remove(self, path: str) -> None:
        """Remove a file of ours."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(self._full(path))

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
        return int(about.get("size") or 0) == found.size and _tag(about) == found.stamp


def _tag(about: Any) -> str:
    """What an object store tells of a version."""
    for name in ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "created"):
        if about.get(name):
            # Some tell a time as a date here, and as a number there.
            told = about[name].timestamp() if isinstance(about[name], datetime) else about[name]
            text = f"{told:.6f}" if isinstance(told, float) else str(told).strip('"')
            return f"{text}+{about.get('size')}"
    return str(about.get("size"))


class LandingPrefix(Landing):
    """New files below a prefix of an object store, as messages."""

    def __init__(
        self, files: Any, prefix: str, pattern: str | None = None, *, name: str | None = None, **how: Any
    ) -> None:
        protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
        # A folder by its address is a folder still, with links that lead out of it.
        local = "file" in protocols
        place = LocalPlace(files._strip_protocol(prefix)) if local else ObjectPlace(files, prefix, name)
        super().__init__(place, pattern, **how)
