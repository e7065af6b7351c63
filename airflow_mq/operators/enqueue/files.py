"""Operator that enqueues files of a machine or an object store."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.adapters import key_for
from airflow_mq.adapters.versions import version_tag
from airflow_mq.operators.enqueue.base import EnqueueOperator, File, Sourced

_WILDCARD = re.compile(r"[*?\[]")


class EnqueueFilesOperator(EnqueueOperator):
    """Enqueue each file that matches a pattern as a message, all of them or none. ::

        EnqueueFilesOperator(task_id="files", files="/data/{{ ds }}/*/*.csv",
                             origin_pattern=r"/(?P<origin>[^/]+)/[^/]+$")

    The files stay where they are; `ReceiveFilesOperator` moves or deletes what it received.

    :param files: a path with wildcards, or the address of an object store with wildcards, through a connection
        (`s3://aws@bucket/in/*.csv`, or an `ObjectStoragePath`); a file larger than a page becomes an external payload
        (templated)
    :param origin_pattern: a regular expression with a group `origin`, searched for in a file's path (templated)
    :param payload: `content`, or `path` if the processor reads the file itself
    :param origin: origin of all messages, or a function of the file's path (templated, if it is text)
    :param key_scope: `ring`: a file is accepted once until it changes, whichever run sends it; `run`: once in each run
    :param idempotent: give messages keys; without keys a send is faster, and a retry may send twice
    :param weight: predicted cost of each message, `[time, size]` (templated)
    :param headers: headers of each message (templated)
    :param not_before: seconds until the messages join their queues (templated)
    :param expires: seconds until the messages expire (templated)
    :param priority: `high` messages are serviced before `regular` ones (templated)
    :param of_team: put the team of the DAG (of Airflow's multi-team) before each origin: `orders` becomes `team/orders`
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
        pattern = re.compile(self.origin_pattern) if self.origin_pattern else None
        for path, file in matching(str(self.files)):
            match = pattern.search(path) if pattern else None
            if pattern and not match:
                raise AirflowFailException(f"origin_pattern does not match {path!r}")
            origin = self.origin_of(path, match["origin"] if match else None)
            payload = path.encode() if self.payload == "path" else file
            yield Sourced(path, origin, payload, key_for("file", f"{path}@{file.version}"))


def matching(pattern: str) -> Iterator[tuple[str, File]]:
    """Yield the files that match a pattern, in the order of their paths."""
    if "://" not in pattern:
        for path in sorted(glob.glob(pattern, recursive=True)):
            if os.path.isfile(path):
                status = os.stat(path)
                version = f"{status.st_mtime_ns}+{status.st_size}"
                yield path, File(status.st_size, partial(_open, path), version)
        return
    from airflow.sdk import ObjectStoragePath

    folder, rest = _split(pattern)
    root = ObjectStoragePath(folder)
    for found in sorted(root.glob(rest) if rest else [root], key=str):
        if found.is_file():
            status = found.stat()
            yield str(found), File(status.st_size, partial(found.open, "rb"), version_tag(status))


def _open(path: str) -> IO[bytes]:
    return open(path, "rb")


def _split(pattern: str) -> tuple[str, str]:
    """Split an address before the part with its first wildcard."""
    scheme, _, path = pattern.partition("://")
    parts = path.split("/")
    first = next((place for place, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    return f"{scheme}://{'/'.join(parts[:first])}", "/".join(parts[first:])
