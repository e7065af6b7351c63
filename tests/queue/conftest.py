"""A queue on every store in turn; whatever a test does to it, everything that must be true stays true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from airflow_mq import MessageQueue, RingConfig
from airflow_mq.store import parse, upgrade


class MakeQueue(Protocol):
    """Makes rings, and opens them."""

    uri: str

    def __call__(
        self, ring: str = "test", *, listeners: Any = (), who: str = "tester", patience: float = 2.0, **settings: Any
    ) -> MessageQueue:
        """A queue on a ring of this name, made with these settings where it is new."""


class Maker:
    """Opens queues on one store, and looks them over at the end."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.opened: list[MessageQueue] = []
        upgrade(parse(uri))

    def __call__(
        self, ring: str = "test", *, listeners: Any = (), who: str = "tester", patience: float = 2.0, **settings: Any
    ) -> MessageQueue:
        with MessageQueue(self.uri) as first:
            if ring not in first.admin.rings():
                first.admin.create_ring(ring, RingConfig(**settings))
        self.opened.append(MessageQueue(self.uri, ring, listeners=listeners, busy_timeout=patience, actor=who))
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
    """A ring as it comes, in the order of the contract."""
    return make_queue(order="rotation")


def serve(queue: MessageQueue, processor: Any = None, **how: Any) -> list[tuple[str, bytes]]:
    """Service once, and tell what was tried, in order."""
    seen: list[tuple[str, bytes]] = []

    def remember(delivery: Any) -> Any:
        seen.append((delivery.origin, delivery.payload))
        return processor(delivery) if processor else None

    queue.service_queues(remember, **how)
    return seen


def told(queue: MessageQueue, **wanted: Any) -> list[tuple[str, str, int, int]]:
    """The events so far: name, origin, page, index."""
    return [(event.name, event.origin, event.page, event.index) for event in queue.inspect.events(**wanted)]
