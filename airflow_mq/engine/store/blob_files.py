"""Files of external payloads: in a folder of this machine, or in a file system of `fsspec`."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from ..rules.errors import ConfigRefused, MessageQueueError, StoreFull, StoreUnreachable

_NAMED = re.compile(r"^((?:s3a?|gs|gcs)://)[^/@]*@")

#: Environment variable with the only folders, comma-separated, in which this process uses payload files.
ROOTS = "AIRFLOW_MQ_BLOB_ROOTS"
_NAME = re.compile(r"[0-9a-f]{32}\.blob")

#: Function from an address to an fsspec file system and the path in it.
FileSystemOf = Callable[[str], tuple[Any, str]]


def by_fsspec(address: str) -> tuple[Any, str]:
    """Return the fsspec file system of an address, with credentials from the environment, and the path in it.

    An address may name an Airflow connection, as in `s3://aws@bucket/folder`; this function ignores it.
    """
    try:
        files, path = import_module("fsspec.core").url_to_fs(_NAMED.sub(r"\1", address))
    except (ImportError, ValueError) as error:
        raise ConfigRefused(f"no file system for {address.partition('://')[0]}:// is installed here: {error}") from None
    return files, path


def fresh_name(folder: str) -> str:
    """Return the path of a new file in a folder."""
    return f"{folder.rstrip('/')}/{secrets.token_hex(16)}.blob"


def named_roots() -> frozenset[str] | None:
    """Return the folders that `ROOTS` names, or `None` if it is not set and the rings name them."""
    value = os.environ.get(ROOTS)
    return None if value is None else frozenset(_bare(root.strip()) for root in value.split(",") if root.strip())


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is that of a payload file directly in one of these folders."""
    folder, _, name = path.rpartition("/")
    return _NAME.fullmatch(name) is not None and _bare(folder) in {_bare(root) for root in roots}


def _bare(folder: str) -> str:
    return folder.removeprefix("file://").rstrip("/")


class BlobFile:
    """A file that is written whole or not at all, and read in pieces."""

    def __init__(self, path: str, filesystem_of: FileSystemOf = by_fsspec) -> None:
        self.path, self._filesystem_of = path.removeprefix("file://"), filesystem_of
        self._is_local = "://" not in self.path
        self._stream: IO[bytes] | None = None

    def begin(self) -> None:
        """Open the file for writing, under a temporary name on a local disk."""
        with self.reached():
            if self._is_local:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
                self._stream = open(f"{self.path}.part", "xb", opener=_private)  # noqa: SIM115 - closed by finish or drop
            else:
                # Object stores show only complete files.
                files, place = self._filesystem_of(self.path)
                self._stream = files.open(place, "wb")

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        assert self._stream is not None
        with self.reached():
            self._stream.write(data)

    def finish(self) -> None:
        """Complete the file; it survives a power failure from now on."""
        assert self._stream is not None
        with self.reached():
            if self._is_local:
                self._stream.flush()
                os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None
            if self._is_local:
                os.replace(f"{self.path}.part", self.path)
                _sync_folder(Path(self.path).parent)

    def drop(self) -> None:
        """Abandon the file."""
        stream, self._stream = self._stream, None
        if stream is not None:
            # Each file system has its own errors, and the cause is another one.
            with suppress(Exception):
                getattr(stream, "discard", stream.close)()

    def open(self) -> IO[bytes]:
        """Open the file for reading; raise `FileNotFoundError` if it does not exist."""
        with self.reached(FileNotFoundError):
            if self._is_local:
                return open(self.path, "rb")
            files, place = self._filesystem_of(self.path)
            stream: IO[bytes] = files.open(place, "rb")
            return stream

    def size(self) -> int | None:
        """Return the size of the file, or `None` if it does not exist."""
        with suppress(FileNotFoundError), self.reached(FileNotFoundError):
            if self._is_local:
                return os.stat(self.path).st_size
            files, place = self._filesystem_of(self.path)
            return int(files.size(place))
        return None

    def remove(self) -> None:
        """Delete the file, complete or not, if it exists."""
        for name in (self.path, f"{self.path}.part") if self._is_local else (self.path,):
            with suppress(FileNotFoundError), self.reached(FileNotFoundError):
                if self._is_local:
                    os.unlink(name)
                else:
                    files, place = self._filesystem_of(name)
                    files.rm_file(place)

    @contextmanager
    def reached(self, *passes: type[OSError]) -> Iterator[None]:
        """Raise errors of the file system as errors of the store, except some."""
        try:
            yield
        except MessageQueueError:
            raise
        except Exception as error:
            folder = self.path.rpartition("/")[0]
            # Clients of object stores raise errors of their own.
            if (isinstance(error, passes) and self._has_root()) or (self._is_local and not isinstance(error, OSError)):
                raise
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    f"the disk of the folder of external payloads, {folder}, is full: nothing was enqueued; "
                    "free space, then retry"
                ) from error
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise StoreUnreachable(f"the folder of external payloads, {folder}, cannot be used: {reason}") from error

    def _has_root(self) -> bool:
        """Return whether the file's folder or bucket exists: the disk may not be mounted, or the address be wrong."""
        if self._is_local:
            return os.path.isdir(os.path.dirname(self.path))
        with suppress(Exception):
            files, place = self._filesystem_of(self.path)
            return bool(files.info(re.findall("^/?[^/]*(?=/)|^/", place)[0]))
        return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
