"""Landing place that is a prefix of an object store."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from ...engine.rules.errors import InvalidInput
from .. import Changed
from ..versions import Versions, code_of, protocols_of, version_tag
from .names import LONGEST_KEY, bytes_of, is_left_alone, shortened
from .place import LONGEST_NOTE, Found, Place, Unreachable

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


class ObjectPlace(Place):
    """A prefix of an object store, through a file system of `fsspec`. A listed object is complete."""

    def __init__(self, files: AbstractFileSystem, prefix: str, versions: Versions | None = None) -> None:
        self.fs, self.prefix = files, str(files._strip_protocol(prefix)).rstrip("/")
        #: Operations on one version of an object; None if objects are never moved or deleted.
        self.versions = versions
        self.name = f"{protocols_of(files)[0]}://{self.prefix.lstrip('/')}"

    def files(self, settle: float) -> Iterator[Found]:
        self.fs.invalidate_cache()
        waiting, unreachable = [self.prefix], Unreachable(self.name)
        while waiting:
            folder = waiting.pop()
            try:
                entries = self.fs.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError) as error:
                if code_of(error) == "NoSuchBucket":
                    raise InvalidInput(f"no bucket of {self.name!r}: expected an existing one; create it") from error
                continue
            for about in entries:
                path = about["name"].rstrip("/")
                name, below = path.rpartition("/")[2], path[len(self.prefix) :].strip("/")
                # An entry may be the listed folder itself.
                if path == folder.rstrip("/") or name in ("", "..") or is_left_alone(name):
                    continue
                if unreachable.is_beyond(below):
                    continue
                if about.get("type") == "directory":
                    waiting.append(path)
                elif about.get("type", "file") == "file" and not about.get("islink"):
                    yield Found(below, int(about.get("size") or 0), version_tag(about))
        unreachable.report()

    def open(self, found: Found) -> IO[bytes]:
        if not self._is_there(found):
            raise Changed()
        try:
            file = self.fs.open(self._full(found.path), "rb")
        except FileNotFoundError as error:
            raise Changed() from error
        # A file in memory is shared by its readers; files of other stores read no line of limited length.
        return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else io.BufferedReader(file)

    def is_same(self, found: Found, file: IO[bytes]) -> bool:
        return self._is_there(found)

    def move(self, found: Found, folder: str) -> str | None:
        versions = self._versions()
        to = self.ours(folder, found.path, "")
        if self.fs.exists(self._full(to)):
            to = self.ours(folder, found.path, f".{found.short}")
        self.fs.makedirs(self._full(to).rpartition("/")[0], exist_ok=True)
        copied = versions.copy(self._full(found.path), found.stamp, self._full(to))
        # The copy stays if the object has another version now: another reader may have made it, too.
        return to if copied and versions.delete(self._full(found.path), found.stamp) else None

    def _versions(self) -> Versions:
        if self.versions is None:
            raise InvalidInput("objects cannot be moved or deleted in this store: set after='keep'")
        return self.versions

    def ours(self, folder: str, path: str, suffix: str) -> str:
        return shortened(f"{folder}/{path}", suffix, LONGEST_KEY - bytes_of(f"{self.prefix}/.why"))

    def drop(self, found: Found) -> bool:
        return self._versions().delete(self._full(found.path), found.stamp)

    def note(self, path: str, text: str) -> None:
        self.fs.pipe_file(self._full(path), text.encode("utf-8", "backslashreplace"))

    def read(self, path: str) -> str:
        try:
            return str(self.fs.cat_file(self._full(path), end=LONGEST_NOTE), errors="replace")
        except FileNotFoundError:
            return ""
        except Exception:
            # A part of an empty object is an error in some stores.
            if self.fs.size(self._full(path)):
                raise
            return ""

    def remove(self, path: str) -> None:
        self.fs.rm_file(self._full(path))

    def _full(self, path: str) -> str:
        return f"{self.prefix}/{path}"

    def _is_there(self, found: Found) -> bool:
        self.fs.invalidate_cache()
        try:
            about = self.fs.info(self._full(found.path))
        except FileNotFoundError:
            return False
        return int(about.get("size") or 0) == found.size and version_tag(about) == found.stamp
