"""Slices of a service: messages that arrive between its commits are not skipped."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, RingConfig, Weight
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.working_set import books
from airflow_mq.testing.conformance import observe
from tests.proofs.concurrency.test_late import send

pytestmark = pytest.mark.concurrency


@pytest.mark.parametrize("remaining", [0, 1], ids=["all of it", "all but the last"])
def test_messages_of_a_processor_are_independent_of_slices(store_uri: str, remaining: int) -> None:
    """They follow rows that were read before or after a commit."""
    upgrade(parse(store_uri))
    books: list[Any] = []
    for slices in (1000, 1, 2, 3, 4, 5):
        with MessageQueue(store_uri) as first:
            first.admin.create_ring(f"by-{slices}", RingConfig(heap_size=64, order="rotation"))
        with MessageQueue(store_uri, f"by-{slices}") as queue:
            queue.enqueue_messages("1", [b"1", b"2", b"send", b"4", b"5", b"6"])
            for payload in (b"x" * 59, b"8"):
                queue.enqueue_message("2", payload)
            queue.service_queues(
                lambda delivery: Done(enqueue=[("2", b"sent")] if delivery.payload == b"send" else []),
                Weight(9 - remaining, 1 << 30), slice_messages=slices,
            )  # fmt: skip
            assert queue.footprint("2").count == remaining
            books.append(observe(queue)["books"])
            assert queue.check() == []
    assert books == [books[0]] * len(books)


@pytest.mark.postgres
def test_late_commit_between_two_slices_is_serviced(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The late row is older than the rows read so far.

    The next operation services it, even after an interrupted service.
    """
    monkeypatch.setattr(books, "RING_SLICE", 2)
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as sender:
        sender.admin.create_ring("small", RingConfig(order="rotation"))
    with MessageQueue(pg_uri, "small") as queue, MessageQueue(pg_uri, "small") as sender, ExitStack() as stack:
        send(sender, stack, "late", b"late")
        for number in range(12):
            queue.enqueue_messages(f"ready {number}", [b"1", b"2"])
        queue.service_queues(lambda delivery: None, Weight(6, 1 << 30))

        tried: list[Any] = []

        def process(delivery: Any) -> None:
            stack.close()
            tried.append(delivery)
            if len(tried) > 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            queue.service_queues(process, slice_messages=1)
        assert "late" in queue.blocks.plan().origins
        assert queue.check() == []


def test_service_advances_the_look_floor(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        for payload in (b"1", b"2", b"3"):
            queue.enqueue_message("a", payload)
        queue.service_queues(lambda delivery: None, Weight(2, 1 << 30), slice_messages=1)
        with queue.session.hold.lock() as (_, locked, _):
            assert locked.state.look_floor >= 3
