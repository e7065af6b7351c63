"""Temporary stores for tests, and assertions about a queue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..engine.queue import MessageQueue
from ..engine.rules.config import RingConfig
from ..engine.store import parse, upgrade
from ..measuring.scratch import beside


@contextmanager
def scratch_store(uri: str | None = None) -> Iterator[str]:
    """Open an empty store and yield its address: a temporary SQLite file, or a new schema of a PostgreSQL database."""
    if uri is None or uri.startswith("sqlite:"):
        with tempfile.TemporaryDirectory(prefix="airflow_mq_") as folder:
            made = f"sqlite:///{Path(folder) / 'queue.db'}"
            upgrade(parse(made))
            yield made
        return
    with beside(parse(uri)) as address:
        yield address.uri


@contextmanager
def scratch_queue(uri: str | None = None, **settings: Any) -> Iterator[MessageQueue]:
    """Open a queue on a temporary store; `settings` are those of its ring."""
    with scratch_store(uri) as made:
        with MessageQueue(made) as first:
            first.admin.create_ring("scratch", RingConfig(**settings))
        with MessageQueue(made, "scratch") as queue:
            yield queue


def assert_sound(queue: MessageQueue) -> None:
    """Assert that all invariants hold."""
    violations = queue.check()
    assert not violations, "\n".join(map(str, violations))


def assert_ring(queue: MessageQueue, origins: Sequence[str]) -> None:
    """Assert that the ready ring holds these origins, from the head on."""
    assert queue.inspect.ring_order(limit=len(origins) + 1) == list(origins)
