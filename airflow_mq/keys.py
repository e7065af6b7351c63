"""Keys of messages and blocks, and the names that Airflow's tasks leave in a queue."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from .engine.rules.message import MOST_KEY_BYTES


def key_for(*parts: str) -> str:
    """Return a key that names a message within its source, or a block; a long or unprintable one is hashed."""
    key = "/".join(parts)
    raw = key.encode("utf-8", "surrogateescape")
    if len(raw) <= MOST_KEY_BYTES and key.isprintable():
        return key
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


class Run(NamedTuple):
    """A DAG run."""

    dag_id: str
    run_id: str


def block_key(installation: str, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the key of the block that a task of an Airflow plans; its retries have the same one."""
    task = task_id if map_index < 0 else f"{task_id}[{map_index}]"
    return key_for(f"{installation}:{dag_id}", run_id, task)


def run_of(key: str | None, installation: str | None) -> Run | None:
    """Return the run of this Airflow that planned a block under this key; None if it was no such run."""
    owner, _, name = (key or "").partition(":")
    dag_id, _, rest = name.partition("/")
    run_id, _, task_id = rest.rpartition("/")
    is_own = installation is not None and owner == installation
    return Run(dag_id, run_id) if is_own and dag_id and run_id and task_id else None
