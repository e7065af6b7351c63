"""Operator that enqueues files of a machine or an object store."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_mq.adapters import log
from airflow_mq.adapters.landing.folder import LocalPlace
from airflow_mq.adapters.landing.place import Found
from airflow_mq.adapters.landing.prefix import ObjectPlace
from airflow_mq.adapters.landing.source import origin_pattern
from airflow_mq.adapters.versions import version_tag
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.keys import key_for
from airflow_mq.operators.base import refuse_text_of
from airflow_mq.operators.enqueue.base import EnqueueOperator, File, Sourced
from airflow_mq.words import many

#: Schemes of this machine's files; a path without one is such a file as well.
LOCAL = ("", "file", "local")
_WILDCARD = re.compile(r"[*?\[]")


class EnqueueFilesOperator(EnqueueOperator):
    """Enqueue each file that matches a pattern as a message, all of them or none. ::

        EnqueueFilesOperator(task_id="files", files="/data/{{ ds }}/*/*.csv",
                             origin_pattern=r"/(?P<origin>[^/]+)/[^/]+$")

    The files stay where they are; `ReceiveFilesOperator` moves or deletes what it received. From the first wildcard on,
    and in the last part of a path, links are left out: they could lead a sender to any file that the worker reads.

    :param files: a path with wildcards, or the address of an object store with wildcards, through a connection
        (`s3://aws@bucket/in/*.csv`, or an `ObjectStoragePath`), or several of them; none if it is empty. The local
        folder before the first wildcard has to exist; folders below it that the worker cannot read are skipped with a
        warning. A file larger than a page becomes an external payload (templated)
    :param origin_pattern: a regular expression with a group `origin`, searched for in a file's path (templated)
    :param payload: `content`, or `path` if the processor reads the file itself
    :param origin: origin of all messages, or a function of the file's path (templated, if it is text)
    :param key_scope: `ring`: a file is accepted once until it changes, whichever run sends it; `run`: once in each run
    """

    template_fields: Sequence[str] = (*EnqueueOperator.template_fields, "files", "origin_pattern")

    def __init__(
        self, *, files: Any, origin_pattern: str | None = None, payload: str = "content", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.files = files
        self.origin_pattern = origin_pattern
        self.payload = payload

    def source(self) -> Iterator[Sourced]:
        if self.payload not in ("content", "path"):
            raise AirflowFailException(f"invalid payload {self.payload!r}: expected 'content' or 'path'")
        try:
            pattern = origin_pattern(None, self.origin_pattern) if self.origin_pattern else None
        except InvalidInput as error:
            raise AirflowFailException(f"origin_pattern: {error}") from None
        refuse_text_of(self.files, "files")
        for path, file in _matching_any(self.files):
            match = pattern.search(path) if pattern else None
            if pattern and not match:
                raise AirflowFailException(f"origin_pattern does not match {path!r}")
            origin = self.origin_of(path, match["origin"] if match else None)
            payload = os.fsencode(path) if self.payload == "path" else file
            yield Sourced(origin, payload, key_for("file", f"{path}@{file.version}"))


def _matching_any(given: Any) -> Iterator[tuple[str, File]]:
    """Yield the files that match one of the patterns that an author wrote, each once."""
    several = given if isinstance(given, Iterable) and not isinstance(given, (str, os.PathLike)) else [given]
    seen: set[str] = set()
    for pattern in filter(None, several):
        is_matched = False
        for path, file in matching(str(pattern)):
            is_matched = True
            if path not in seen:
                seen.add(path)
                yield path, file
        if not is_matched:
            log.warning("%s: no file matches", pattern)


def matching(pattern: str) -> Iterator[tuple[str, File]]:
    """Yield the files that match a pattern, in the order of their paths."""
    scheme, mark, path = pattern.rpartition("://")
    if scheme not in LOCAL:
        yield from _objects(pattern)
        return
    # An address of a folder is still a folder, with links that lead out of it.
    for name, place, found in _local(path):
        address = f"{scheme}{mark}{name}"
        yield address, File(found.size, partial(place.stretch, found), _version(found, scheme), address)


def _local(pattern: str) -> Iterator[tuple[str, LocalPlace, Found]]:
    """Yield the files of this machine; from the first wildcard on, and in its last part, a path passes no link."""
    folder, rest = _split(pattern)
    rights = os.R_OK | os.X_OK
    if not rest:
        folder, _, rest = folder.rpartition("/")
    root = folder or ("/" if pattern.startswith("/") else "")
    if not os.path.isdir(root or "."):
        raise AirflowException(f"folder not found: {root!r}, of files={pattern!r}: check the path and the mount")
    if not os.access(root or ".", rights):
        raise AirflowException(f"folder cannot be read: {root!r}, of files={pattern!r}: check its permissions")
    place, links = LocalPlace(root or "."), 0
    for below in _folders(place, rest):
        # The search leaves it out without an error. A disk's own folder holds no file of a sender.
        if below != "lost+found/" and not os.access(os.path.join(place.folder, below), rights):
            log.warning("%s: cannot read the folder %s", pattern, ascii(below))
    for below in sorted(glob.glob(rest, root_dir=place.folder, recursive=True)):
        path = os.path.join(root, below)
        try:
            # Folders that `**` matches end with a slash.
            found = None if below.endswith("/") else place.find(below)
        except PermissionError:
            # The warning above names its folder.
            continue
        if found is not None:
            yield path, place, found
        elif os.path.isfile(path):
            links += 1
    if links:
        log.warning("%s: left out %s, whose paths pass a link", pattern, many(links, "file"))


def _folders(place: LocalPlace, rest: str) -> list[str]:
    """Return the folders in which files are searched."""
    parts = rest.split("/")
    steps = ["/".join([*parts[:depth], ""]) for depth in range(1, len(parts) + (parts[-1] == "**"))]
    return sorted({name for step in steps for name in glob.glob(step, root_dir=place.folder, recursive=True)})


def _version(found: Found, scheme: str) -> str:
    """Return the version of a file as its key has it; an address has the one that a file system reports."""
    if not scheme or found.identity is None:
        return found.stamp
    seconds, nanoseconds = divmod(found.identity[1], 10**9)
    # As Python computes the time of a file: a quotient has another last digit now and then.
    return version_tag({"mtime": seconds + 1e-9 * nanoseconds, "size": found.size})


def _objects(pattern: str) -> Iterator[tuple[str, File]]:
    from airflow.sdk import ObjectStoragePath

    scheme, _, path = pattern.partition("://")
    folder, rest = _split(path)
    root = ObjectStoragePath(f"{scheme}://{folder}")
    objects = [found for found in sorted(root.glob(rest) if rest else [root], key=str) if found.is_file()]
    for found, status in [(found, found.stat()) for found in objects]:
        version, (above, _, name) = version_tag(status), found.path.rpartition("/")
        opened = partial(ObjectPlace(found.fs, above).stretch, Found(name, status.st_size, version))
        yield str(found), File(status.st_size, opened, version, str(found))


def _split(path: str) -> tuple[str, str]:
    """Split a path before the part with its first wildcard."""
    parts = path.split("/")
    first = next((place for place, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    return "/".join(parts[:first]), "/".join(parts[first:])
