"""Names that Airflow's tasks leave in a queue: keys of blocks and messages, and actors."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

#: Longest key in bytes; a longer one is replaced by its hash.
MOST_KEY = 900


class Run(NamedTuple):
    """A DAG run."""

    dag_id: str
    run_id: str


def block_key(installation: str, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the key of the block that a task of an Airflow plans; its retries have the same one."""
    task = task_id if map_index < 0 else f"{task_id}[{map_index}]"
    return _bounded(f"{installation}:{dag_id}/{run_id}/{task}")


def run_of(key: str | None, installation: str | None) -> Run | None:
    """Return the run of this Airflow that planned a block under this key; None if it was no such run."""
    owner, _, name = (key or "").partition(":")
    dag_id, _, rest = name.partition("/")
    run_id, _, task_id = rest.rpartition("/")
    is_own = installation is not None and owner == installation
    return Run(dag_id, run_id) if is_own and dag_id and run_id and task_id else None


def message_base(installation: str, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the common part of the keys of a task's messages: the same at every try and after a clear."""
    return f"{installation}:{dag_id}/{run_id}/{task_id}/{map_index}"


def message_key(base: str, place: str) -> str:
    """Return the key of a message by its place in a task's source."""
    key = f"{base}/{place}"
    return _bounded(key) if key.isprintable() else _hashed(key)


def _bounded(key: str) -> str:
    return key if len(key.encode("utf-8", "surrogateescape")) <= MOST_KEY else _hashed(key)


def _hashed(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()}"


def task_actor(dag_id: str, task_id: str, person: str | None = None) -> str:
    """Return a task as the actor of its decisions, with the person who triggered its run."""
    task = f"{dag_id}.{task_id}"
    return f"{person} by {task}" if person else task
