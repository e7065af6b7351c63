"""Deletion of one version of an object, for stores that others write to meanwhile.

Between the moment in which an object was read and the one in which it is deleted, its sender may write it again.
`Versions` deletes the version that was read, and no other one.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..core.errors import InvalidInput

#: What S3 answers where the object is another version.
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_GONE = ("NoSuchKey", "NoSuchVersion", "404")


class Versions(ABC):
    """What a store does with one version of an object, all at once or not at all."""

    @abstractmethod
    def copy(self, path: str, version: str, to: str) -> bool:
        """Copy an object, unless it is another version now; return whether it was copied."""

    @abstractmethod
    def delete(self, path: str, version: str) -> bool:
        """Delete an object, unless it is another version now; return whether it is gone."""


def version_tag(about: Any) -> str:
    """Return what names the version of an object among the facts that a file system of `fsspec` reports."""
    for name in ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "created"):
        if about.get(name):
            # Some tell a time as a date here, and as a number there.
            told = about[name].timestamp() if isinstance(about[name], datetime) else about[name]
            text = f"{told:.6f}" if isinstance(told, float) else str(told).strip('"')
            return f"{text}+{about.get('size')}"
    return str(about.get("size"))


def versions_of(files: Any, prefix: str) -> Versions:
    """Return how the store of a file system deletes one version; raise `InvalidInput` if it cannot."""
    protocols = (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
    if "s3" in protocols:
        return S3Versions(files, prefix)
    if "memory" in protocols:
        return MemoryVersions(files)
    raise InvalidInput(
        f"no way is known to delete one version of an object in a store of {protocols[0]!r}, and one that is written "
        "meanwhile could be lost: set after='keep', or pass versions="
    )


class S3Versions(Versions):
    """Objects of S3, copied and deleted on the condition of their ETag."""

    def __init__(self, files: Any, prefix: str) -> None:
        self.fs = files
        if not self._honours_conditions(f"{prefix}/.received/.probe-{uuid.uuid4().hex}"):
            raise InvalidInput(
                f"the store of {prefix!r} ignores If-Match when it deletes an object, so a version that is written "
                "meanwhile could be lost: set after='keep', or use a store that honours the condition"
            )

    def _honours_conditions(self, probe: str) -> bool:
        """Whether the store refuses to delete an object that has another ETag: tried with an object of ours."""
        self.fs.pipe_file(probe, b"probe")
        try:
            refused = not self._delete(probe, IfMatch='"00000000000000000000000000000000"')
            return refused and bool(self.fs.exists(probe))
        except (NotImplementedError, OSError, ValueError, TypeError):
            # The store does not know the condition, or the client does not.
            return False
        finally:
            with suppress(FileNotFoundError):
                self.fs.rm_file(probe)

    def copy(self, path: str, version: str, to: str) -> bool:
        """Copy an object, unless it is another version now; return whether it was copied."""
        source, target = self._place(path), self._place(to)
        tag = f'"{_etag(version)}"'
        return self._on_condition("copy_object", **target, CopySource=source, CopySourceIfMatch=tag)

    def delete(self, path: str, version: str) -> bool:
        """Delete an object, unless it is another version now; return whether it is gone."""
        return self._delete(path, IfMatch=f'"{_etag(version)}"')

    def _delete(self, path: str, **condition: str) -> bool:
        try:
            return self._on_condition("delete_object", **self._place(path), **condition)
        finally:
            self.fs.invalidate_cache(path)

    def _place(self, path: str) -> dict[str, str]:
        bucket, key, _ = self.fs.split_path(path)
        return {"Bucket": bucket, "Key": key}

    def _on_condition(self, method: str, **how: Any) -> bool:
        try:
            self.fs.call_s3(method, **how)
        except FileNotFoundError:
            return False
        except Exception as error:
            if _code(error) in (*_CHANGED, *_GONE):
                return False
            raise
        return True


def _code(error: BaseException) -> str:
    """The code of S3's answer, which the file system may have put into an error of its own."""
    for one in (error, error.__cause__, error.__context__):
        answer = getattr(one, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
    return ""


def _etag(version: str) -> str:
    return version.rpartition("+")[0]


class MemoryVersions(Versions):
    """Objects of the file system that `fsspec` keeps in memory."""

    def __init__(self, files: Any) -> None:
        self.fs = files

    def copy(self, path: str, version: str, to: str) -> bool:
        """Copy an object, unless it is another version now; return whether it was copied."""
        file = self._file(path, version)
        if file is not None:
            self.fs.pipe_file(to, file.getvalue())
        return file is not None

    def delete(self, path: str, version: str) -> bool:
        """Delete an object, unless it is another version now; return whether it is gone."""
        file = self._file(path, version)
        if file is None:
            return False
        taken = self.fs.store.pop(path, None)
        if taken is not None and taken is not file:
            self.fs.store.setdefault(path, taken)
        return taken is file

    def _file(self, path: str, version: str) -> Any:
        file = self.fs.store.get(path)
        is_same = file is not None and version_tag({"created": file.created, "size": file.size}) == version
        return file if is_same else None
