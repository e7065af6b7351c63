"""Limits on the number of origins of a ring."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_mq import Message, MessageQueue, RingConfig
from airflow_mq.engine.rules.errors import ConfigRefused, TooManyOrigins
from tests.store.queue.conftest import serve


def test_new_origin_is_rejected_until_another_is_empty(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(max_origins=2)
    queue.enqueue_message("a", b"1")
    queue.enqueue_messages([("a", b"2"), ("b", b"1")])
    for send in (
        lambda: queue.enqueue_message("c", b"1"),
        lambda: queue.enqueue_message("c", b"1", not_before=60),
        lambda: queue.enqueue_messages([("a", b"3"), ("c", b"1")]),
        lambda: queue.enqueue_messages("c", [Message(b"1", key="k")]),
    ):
        with pytest.raises(TooManyOrigins, match="the ring has reached its limit of 2 origins: 'c' would be one"):
            send()
    assert [(origin, footprint.count) for origin, footprint in queue.footprints()] == [("a", 2), ("b", 1)]
    queue.enqueue_message("a", b"4")
    serve(queue)
    assert queue.enqueue_messages("c", [Message(b"1", key="k")]).count == 1
    assert queue.enqueue_message("d", b"1", not_before=3_600).count == 1
    with pytest.raises(TooManyOrigins):
        queue.enqueue_message("e", b"1")


def test_repeated_key_of_an_emptied_origin_is_accepted(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(max_origins=1)
    assert queue.enqueue_message("a", b"1", key="k").count == 1
    serve(queue)
    queue.enqueue_message("b", b"1")
    assert queue.enqueue_message("a", b"1", key="k").repeated == 1
    with pytest.raises(TooManyOrigins):
        queue.enqueue_message("a", b"2", key="k2")


def test_max_origins_per_group_limits_each_group(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(max_origins_per_group=2)
    queue.enqueue_messages([("acme", b"1"), ("acme/orders", b"1"), ("acme-2/x", b"1"), ("acme0", b"1"), ("b/1", b"1")])
    queue.enqueue_message("b/2", b"1")
    for origin in ("acme/mail", "b", "b/3"):
        with pytest.raises(TooManyOrigins, match=f"the group '{origin.partition('/')[0]}' has reached its limit of 2"):
            queue.enqueue_message(origin, b"1")
    queue.enqueue_message("acme-2/y", b"1")


def test_origins_in_flight_or_set_aside_count(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(max_origins=1)
    queue.enqueue_message("a", b"1")
    block = queue.blocks.plan()
    with pytest.raises(TooManyOrigins):
        queue.enqueue_message("b", b"1")
    queue.blocks.release(block)
    queue.sweep_queue("a")
    with pytest.raises(TooManyOrigins):
        queue.enqueue_message("b", b"1")


def test_outcome_settles_beyond_max_origins(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(max_origins=1)
    queue.enqueue_message("a", b"1")
    serve(queue, lambda delivery: delivery.enqueue("b", b"1") if delivery.origin == "a" else False)
    assert [origin for origin, _ in serve(queue)] in ([], ["b"])


@pytest.mark.concurrency
def test_concurrent_senders_stay_within_max_origins(make_queue: Any) -> None:
    # SQLite admits one writer at a time, and in no fixed order.
    first: MessageQueue = make_queue(patience=120, max_origins=20)
    queues = [first, *(make_queue(patience=120) for _ in range(3))]
    refused: list[str] = []

    def send(number: int, queue: MessageQueue) -> None:
        for number_of_call in range(10):
            try:
                queue.enqueue_message(f"{number}-{number_of_call}", b"1")
            except TooManyOrigins:
                refused.append(f"{number}-{number_of_call}")

    threads = [threading.Thread(target=send, args=entry) for entry in enumerate(queues)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first.footprints()) == 20 and len(refused) == 20


def test_ring_without_max_origins_reads_no_origins(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    seen: list[str] = []
    queue.store.probe = seen.append
    queue.enqueue_messages([(f"o{number}", b"1") for number in range(200)])
    assert not {"known_origins", "hold_origins"} & set(seen)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "1", 1 << 31])
def test_invalid_max_origins_are_rejected(bad: Any) -> None:
    for name in ("max_origins", "max_origins_per_group"):
        with pytest.raises(ConfigRefused, match=f"invalid {name} .*: expected a whole number of at least 1, or none"):
            RingConfig(**{name: bad})
