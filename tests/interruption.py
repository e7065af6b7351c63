"""Actions that tests run between two statements of a queue."""

from __future__ import annotations

from collections.abc import Callable

from airflow_mq import MessageQueue


def before_statement(queue: MessageQueue, statement: str, action: Callable[[], object]) -> None:
    """Run `action` once, right before the queue runs a statement of this name for the first time."""
    done = False

    def probe(name: str) -> None:
        nonlocal done
        if name == statement and not done:
            done = True
            action()

    queue.store.probe = probe
