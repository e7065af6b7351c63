"""Landing place that is a folder of this machine."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from ...engine.rules.errors import InvalidInput
from .. import Changed, log
from .names import LONGEST_NAME, is_left_alone, shortened
from .place import LONGEST_NOTE, RECEIVED, Found, Place, Unreachable

#: Errors for a path that does not exist, or that a link replaced.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class LocalPlace(Place):
    """A folder of this machine. Paths are opened part by part, so that no link ever leads out of it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.realpath(folder)
        self.name = self.folder
        if not os.path.isdir(self.folder):
            raise InvalidInput(f"no folder {os.fspath(folder)!r}: expected an existing landing folder; create it")

    def files(self, settle: float) -> Iterator[Found]:
        waiting, unreachable, self.unreadable = [""], Unreachable(self.name), 0
        while waiting:
            prefix = waiting.pop()
            try:
                with self._parent(f"{prefix}x") as (folder, _), os.scandir(folder) as entries:
                    for entry in entries:
                        path = f"{prefix}{entry.name}"
                        if is_left_alone(entry.name) or unreachable.is_beyond(path):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(f"{path}/")
                        elif entry.is_file(follow_symlinks=False):
                            yield from self._complete(path, entry, settle)
            except OSError as error:
                if not prefix:
                    raise InvalidInput(
                        f"cannot read the landing folder {self.folder!r} ({error.strerror}): expected one that this "
                        "user may list and enter"
                    ) from error
                self.unreadable += error.errno not in _NOT_THERE
                log.warning("cannot read the folder %s: %s", ascii(prefix), error.strerror)
        unreachable.report()

    @staticmethod
    def _complete(path: str, entry: os.DirEntry[str], settle: float) -> Iterator[Found]:
        with suppress(FileNotFoundError):
            about = entry.stat(follow_symlinks=False)
            if not settle or time.time() - about.st_ctime >= settle:
                yield _found(path, about)

    def find(self, path: str) -> Found | None:
        """Return the file at a path below the folder; None if there is none, or if a link is on the way."""
        try:
            with self._parent(path) as (folder, name):
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        return _found(path, about) if stat.S_ISREG(about.st_mode) else None

    @contextmanager
    def _parent(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file part by part; yield it with the file's own name."""
        *folders, name = path.split("/")
        if any(part in ("", ".", "..") for part in (*folders, name)):
            raise InvalidInput(f"invalid path {path!r}: it leads out of its folder")
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
        try:
            with self._parent(found.path) as (folder, name):
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError as error:
            if error.errno not in (*_NOT_THERE, errno.ENXIO, errno.EISDIR):
                raise
            raise Changed() from error
        # Before a file object is made, which fails for a folder and leaves the handle open.
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or _identity(about) != found.identity:
            os.close(handle)
            raise Changed()
        return os.fdopen(handle, "rb")

    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        return bool(_identity(os.fstat(file.fileno())) == found.identity)

    def move(self, found: Found, folder: str) -> str | None:
        try:
            with self._parent(found.path) as (here, name):
                if not _is_at(name, here, found):
                    return None
                with self._kept(folder, found.path) as (there, parent):
                    kept = name if not _exists(name, there) else shortened(name, f".{found.short}", LONGEST_NAME)
                    return f"{parent}{kept}" if self._rename(found, here, name, there, kept) else None
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    @contextmanager
    def _kept(self, folder: str, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder below `.received` or `.refused` for a file; yield it with its path.

        If a file has the name of a folder that is needed, use the folder above it.
        """
        parent = f"{folder}/{path.rpartition('/')[0]}".rstrip("/") + "/"
        with ExitStack() as held:
            while True:
                try:
                    there, _ = held.enter_context(self._parent(f"{parent}x", make=True))
                except NotADirectoryError:
                    if parent == f"{folder}/":
                        raise PermissionError(errno.EPERM, f"{folder!r} is not a folder") from None
                    parent = parent.rstrip("/").rpartition("/")[0] + "/"
                    continue
                break
            yield there, parent

    @staticmethod
    def _rename(found: Found, here: int, name: str, there: int, kept: str) -> bool:
        os.rename(name, kept, src_dir_fd=here, dst_dir_fd=there)
        if not _is_at(kept, there, found) and not _exists(name, here):
            # A sender replaced the file at that very moment: the new one is still to be received.
            os.rename(kept, name, src_dir_fd=there, dst_dir_fd=here)
            return False
        return True

    def drop(self, found: Found) -> bool:
        where = self.move(found, RECEIVED)
        if where is None:
            return False
        self.remove(where)
        return True

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def ours(self, folder: str, path: str, suffix: str) -> str:
        parent, _, name = path.rpartition("/")
        return f"{folder}/{parent}{'/' if parent else ''}{shortened(name, suffix, LONGEST_NAME)}"

    def note(self, path: str, text: str) -> None:
        with self._parent(path, make=True) as (folder, long):
            name = shortened(long, "", LONGEST_NAME)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "w", errors="backslashreplace") as file:
                file.write(text)

    def read(self, path: str) -> str:
        note = self.find(path)
        if note is None:
            return ""
        with self.open(note) as file:
            return str(file.read(LONGEST_NOTE), errors="replace")


def _found(path: str, about: os.stat_result) -> Found:
    return Found(path, about.st_size, f"{about.st_mtime_ns}+{about.st_size}", _identity(about))


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
