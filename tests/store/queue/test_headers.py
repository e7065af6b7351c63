"""Headers: limited in size, and counted in sizes and weights."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from airflow_mq import Delivery, Done, LinearWeigher, Message, MessageQueue, Weight, Yield
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidMessage
from tests.peak import peak_of
from tests.store.queue.conftest import Maker

#: Ten and eleven bytes in UTF-8.
TEN = {"ä": "12345678"}
ELEVEN = {"ä": "123456789"}


def test_max_headers_limits_each_sending_call(make_queue: Maker) -> None:
    queue = make_queue(max_headers=10)
    ways: list[Callable[[dict[str, str]], object]] = [
        lambda headers: queue.enqueue_message("acme", b"a", headers=headers),
        lambda headers: queue.enqueue_messages("acme", [b"a", b"b"], headers=headers),
        lambda headers: queue.enqueue_messages([("acme", b"a"), ("acme", Message(b"b", headers=headers))]),
        lambda headers: queue.enqueue_messages("acme", [Message(b"b", key="k", headers=headers)]),
    ]
    for way in ways:
        with pytest.raises(InvalidMessage, match=r"headers too long \(11 bytes\).*max_headers=10"):
            way(ELEVEN)
    assert queue.footprints() == []
    for way in ways:
        way(TEN)
    assert queue.footprint("acme").count == 6
    queue.admin.change_ring(max_headers=11)
    queue.enqueue_message("acme", b"a", headers=ELEVEN)
    with pytest.raises(ConfigRefused):
        queue.admin.change_ring(max_headers=-1)


def test_max_headers_has_a_default(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a", headers={"x": "y" * 16_383})
    with pytest.raises(InvalidMessage, match="max_headers=16,384"):
        queue.enqueue_message("acme", b"a", headers={f"x{number}": "y" * 9_000 for number in range(2)})


def test_a_trace_without_room_is_left_out(make_queue: Maker) -> None:
    """Neither a small limit nor the long trace of a hostile sender keeps others from sending."""
    make_queue(max_headers=66 + 11)
    parent = {"traceparent": f"00-{7:032x}-{7:016x}-01"}
    context = SpanContext(7, 7, False, TraceFlags(TraceFlags.SAMPLED), TraceState([("k", "v")]))
    twelve = {"x": "12345678901"}

    def process(delivery: Delivery) -> None:
        queue.enqueue_messages("out", [b"1", Message(b"2", headers=TEN), Message(b"3", headers=twelve)])

    with MessageQueue(make_queue.uri, "test", traces=True) as queue:
        queue.enqueue_message("in", b"a", headers={**parent, "filler": "12345"})
        assert queue.service_queues(process, origins=["in"]).processed == 1
        with trace.use_span(NonRecordingSpan(context)):
            queue.enqueue_messages("out", [b"4", Message(b"5", headers=twelve), Message(b"6", headers=parent)])
        sent = {peeked.payload: peeked.headers for peeked in queue.inspect.peek("out")}
    assert sent == {b"1": parent, b"2": {**parent, **TEN}, b"3": twelve, b"4": {}, b"5": twelve, b"6": parent}


def test_max_headers_limits_processors(make_queue: Maker) -> None:
    queue = make_queue(max_headers=10)
    queue.enqueue_message("in", b"a")

    def process(delivery: Any) -> Any:
        with pytest.raises(InvalidMessage):
            queue.enqueue_message("out", b"a", headers=ELEVEN)
        return Done(enqueue=[("out", Message(b"b", headers=ELEVEN))])

    assert queue.service_queues(process).processed == 0
    assert [event.name for event in queue.inspect.events()] == ["Returned"]
    assert queue.footprint("out").count == 0
    assert queue.service_queues(lambda _: Done(enqueue=[("out", Message(b"b", headers=TEN))]), limit=Weight(1, 1))
    assert queue.footprint("out").size == 11


def test_headers_count_in_sizes_and_weights(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=LinearWeigher(Weight(1, 0), Weight(1000, 2000)))
    messages = [b"one", Message(b"three", headers=TEN), Message(b"known", headers=TEN, weight=Weight(2, 2))]
    queue.enqueue_messages("acme", messages)
    assert queue.footprint("acme").size == 3 + 15 + 15
    block = queue.blocks.plan()
    # The declared weight includes headers; the ring's weigher counts them in its size.
    assert block.planned == Weight(4 + 6 + 2, 6 + 30 + 2)
    batches = list(block.batches())
    assert [len(headers) for batch in batches for headers in batch.headers] == [0, 1, 1]
    queue.blocks.report(block, [batch.answer() for batch in batches])
    assert queue.footprint("acme").size == 0
    assert queue.blocks.settle(block).weight == block.planned
    assert queue.check() == []


def test_footprint_sizes_include_headers_after_each_outcome(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", service_weight=Weight(100, 1_000))
    heavy = Message(b"heavy", headers=TEN, weight=Weight(101, 1))
    queue.enqueue_messages("acme", [Message(b"again", headers=TEN), heavy, Message(b"gone", headers=TEN)])
    sizes = []
    queue.blocks.release(queue.blocks.plan())
    for answer in (Yield(), Done()):
        queue.service_queues(lambda delivery, answer=answer: answer)  # type: ignore[misc]
        sizes.append(queue.footprint("acme").size)
    queue.admin.change_ring(service_weight=Weight(1_000, 1_000))
    assert len(queue.set_aside.requeue_all().moved) == 1
    sizes.append(queue.footprint("acme").size)
    queue.service_queues(lambda delivery: delivery.enqueue("birch", b"x", headers=TEN))
    assert sizes == [44, 15, 15]
    assert queue.footprint("acme").size == 0


def test_block_reads_only_headers_within_its_limit(make_queue: Maker) -> None:
    queue = make_queue(order="rotation")
    large = {"x": "y" * 16_000}
    queue.enqueue_messages("acme", (Message(b"a", headers=large) for _ in range(2_000)))
    read: list[int] = []

    def work() -> None:
        block = queue.blocks.plan(limit=Weight(600_000, 50_000))
        read.extend(len(headers["x"]) for batch in block.batches() for headers in batch.headers)

    assert peak_of(work) < 12 << 20
    assert read == [16_000] * 3


def test_the_headers_of_a_block_are_taken_from_all_queues_in_little_memory(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(600_000, 1 << 30))
    for n in range(30):
        queue.enqueue_messages(f"acme{n}", (Message(b"a", headers={"x": "y" * 16_000}) for _ in range(100)))
    block = queue.blocks.plan()
    read: Counter[str] = Counter()
    assert peak_of(lambda: read.update(own.address.origin for own in queue.inspect.headers(block, 64))) < 16 << 20
    assert len(read) == 30 and min(read.values()) == 2 and read.total() == 64


def test_headers_of_a_block_are_found_where_few_queues_have_any(queue: MessageQueue) -> None:
    for n in range(20):
        queue.enqueue_messages(f"acme{n}", [Message(b"a", headers={"x": str(n)} if n == 7 else None)] * 30)
    block = queue.blocks.plan(limit=Weight(600_000, 1 << 30))
    found = queue.inspect.headers(block, 25, bool)
    assert {own.address.origin for own in found} == {"acme7"} and len({own.address for own in found}) == 25


def test_headers_of_a_message_replace_those_of_the_call(queue: MessageQueue) -> None:
    """In a call of a sender and in one of a processor."""

    def send() -> None:
        queue.enqueue_messages("out", [b"1", Message(b"2", headers={"own": "b"})], headers={"call": "a"})

    def process(delivery: Delivery) -> None:
        if delivery.origin == "acme":
            send()
        else:
            seen.append(dict(delivery.headers))

    seen: list[dict[str, str]] = []
    send()
    queue.enqueue_message("acme", b"x")
    queue.service_queues(process, limit=Weight(1_000, 1_000))
    queue.service_queues(process, limit=Weight(1_000, 1_000))
    assert seen == [{"call": "a"}, {"own": "b"}] * 2


def test_headers_are_a_copy_of_the_processors_own(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"1", b"2"])
    read: list[str] = []

    def process(delivery: Delivery) -> None:
        read.append(json.dumps(delivery.headers))
        dict_of(delivery.headers)["x"] = "y"

    def dict_of(headers: Any) -> dict[str, str]:
        assert type(headers) is dict
        return headers

    assert [peeked.headers for peeked in queue.inspect.peek("acme")] == [{}, {}]
    dict_of(queue.inspect.peek("acme")[0].headers)["x"] = "y"
    assert queue.service_queues(process).processed == 2
    assert read == ["{}", "{}"]
