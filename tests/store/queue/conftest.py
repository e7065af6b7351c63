"""Queue fixtures on each store; each queue must pass its check after the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from airflow_mq import MessageQueue, RingConfig
from airflow_mq.engine.store import parse, upgrade


def in_airflow(title: str | None) -> str | None:
    """Return the name of a server, as an Airflow gives it to a task with this title."""
    return None if title is None else title.replace(",", " of Airflow 'here',", 1)


class MakeQueue(Protocol):
    """A function that creates rings and opens queues on them."""

    uri: str

    def __call__(
        self, ring: str = "test", *, listeners: Any = (), actor: str = "tester", patience: float = 2.0, **settings: Any
    ) -> MessageQueue:
        """Open a queue on this ring; create the ring with these settings if it is new."""


class Maker:
    """Opener of queues on one store."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.opened: list[MessageQueue] = []
        upgrade(parse(uri))

    def __call__(
        self, ring: str = "test", *, listeners: Any = (), actor: str = "tester", patience: float = 2.0, **settings: Any
    ) -> MessageQueue:
        with MessageQueue(self.uri) as first:
            if ring not in first.admin.rings():
                first.admin.create_ring(ring, RingConfig(**settings))
        self.opened.append(MessageQueue(self.uri, ring, listeners=listeners, busy_timeout=patience, actor=actor))
        return self.opened[-1]


@pytest.fixture
def make_queue(store_uri: str) -> Iterator[Maker]:
    maker = Maker(store_uri)
    yield maker
    for queue in maker.opened:
        assert queue.check() == []
        queue.close()


@pytest.fixture
def queue(make_queue: Maker) -> MessageQueue:
    """Return a queue on a ring with default settings in rotation order."""
    return make_queue(order="rotation")


def serve(queue: MessageQueue, processor: Any = None, **options: Any) -> list[tuple[str, bytes]]:
    """Service once and return the tried messages in order."""
    seen: list[tuple[str, bytes]] = []

    def remember(delivery: Any) -> Any:
        seen.append((delivery.origin, delivery.payload))
        return processor(delivery) if processor else None

    queue.service_queues(remember, **options)
    return seen


def logged_events(queue: MessageQueue, **filters: Any) -> list[tuple[str, str, int, int]]:
    """Return the events so far as (name, origin, page, index)."""
    return [(event.name, event.origin, event.page, event.index) for event in queue.inspect.events(**filters)]
