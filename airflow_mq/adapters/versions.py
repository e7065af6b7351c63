"""Versions of objects: conditional copies and deletions in stores that senders write to meanwhile.

A sender may write an object again after it was read and before it is deleted. `Versions` deletes the version that was
read, and no other one.
"""

from __future__ import annotations

import errno
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..engine.rules.errors import InvalidInput

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: Answers of S3 if the object has another version, or is gone.
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409", "NoSuchKey", "NoSuchVersion", "404")


class Versions(ABC):
    """Operations of a store on one version of an object, each complete or without effect."""

    @abstractmethod
    def copy(self, path: str, version: str, to: str) -> bool:
        """Copy an object unless it has another version now; return whether it was copied."""

    @abstractmethod
    def delete(self, path: str, version: str) -> bool:
        """Delete an object unless it has another version now; return whether it was deleted."""


def version_tag(about: Mapping[str, Any]) -> str:
    """Return a tag of an object's version from the facts that a file system of `fsspec` reports."""
    for name in ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "created"):
        if about.get(name):
            # File systems report a time as a date or as a number.
            value = about[name].timestamp() if isinstance(about[name], datetime) else about[name]
            text = f"{value:.6f}" if isinstance(value, float) else str(value).strip('"')
            return f"{text}+{about.get('size')}"
    return str(about.get("size"))


def protocols_of(files: AbstractFileSystem) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def versions_of(files: AbstractFileSystem, prefix: str) -> Versions:
    """Return the operations of a file system's store on one version, or raise `InvalidInput`."""
    protocols = protocols_of(files)
    if "s3" in protocols:
        return S3Versions(files, prefix)
    raise InvalidInput(
        f"cannot delete one version of an object in a store of {protocols[0]!r}, so a version that is written "
        "meanwhile could be lost: set after='keep', or pass versions="
    )


class S3Versions(Versions):
    """Objects of S3, copied and deleted on condition of their ETag."""

    def __init__(self, files: AbstractFileSystem, prefix: str) -> None:
        self.fs = files
        if not self._honours_conditions(f"{prefix}/.received/.probe-{uuid.uuid4().hex}"):
            raise InvalidInput(
                f"the store of {prefix!r} ignores If-Match when it deletes an object, so a version that is written "
                "meanwhile could be lost: set after='keep', or use a store that honours the condition"
            )

    def _honours_conditions(self, probe: str) -> bool:
        """Return whether the store refuses to delete an object with another ETag; try it with a probe."""
        self.fs.pipe_file(probe, b"probe")
        try:
            refused = not self.delete(probe, f"{'0' * 32}+")
            return refused and bool(self.fs.exists(probe))
        except (NotImplementedError, OSError, ValueError, TypeError) as error:
            # The store or the client does not support the condition. After any other failure that is unknown.
            if isinstance(error, OSError) and error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
                raise
            return False
        finally:
            with suppress(FileNotFoundError):
                self.fs.rm_file(probe)

    def copy(self, path: str, version: str, to: str) -> bool:
        source, target = self._place(path), self._place(to)
        tag = f'"{_etag(version)}"'
        return self._on_condition("copy_object", **target, CopySource=source, CopySourceIfMatch=tag)

    def delete(self, path: str, version: str) -> bool:
        try:
            return self._on_condition("delete_object", **self._place(path), IfMatch=f'"{_etag(version)}"')
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
            if code_of(error) in _CHANGED:
                return False
            raise
        return True


def code_of(error: BaseException) -> str:
    """Return the code of S3's answer, which the file system may have wrapped in another error."""
    for cause in (error, error.__cause__, error.__context__):
        answer = getattr(cause, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
    return ""


def _etag(version: str) -> str:
    return version.rpartition("+")[0]
