"""Invalid values: rejected with a named error and advice, without changes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_mq import (
    Address,
    BadFormat,
    Done,
    Message,
    MessageQueue,
    Overweight,
    RingConfig,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.engine.queue.values import Batch, Delivery, Report
from airflow_mq.engine.rules.errors import (
    ConfigRefused,
    EmptyMessage,
    InvalidInput,
    InvalidMessage,
    InvalidOrigin,
    InvalidWeight,
    MessageQueueError,
    MessageTooLong,
    TokenRefused,
    UnknownBlock,
    UnknownRing,
)
from airflow_mq.engine.store import parse, upgrade
from tests.proofs.crash.states import everything


def without_address(value: object) -> str:
    """Return the representation without addresses, which is the same in each process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_messages("here", [b"one", b"two"])
        yield queue


def assert_rejected(queue: MessageQueue, call: Callable[[], object], *kinds: type[Exception]) -> str:
    """Check that a call raises a short named error and changes nothing; return its text."""
    before = everything(queue)
    with pytest.raises(kinds or InvalidInput) as caught:
        call()
    assert isinstance(caught.value, MessageQueueError)
    text = str(caught.value)
    assert 10 < len(text) < 500, text
    # The text is printable: odd characters are escaped.
    assert "\n" not in text and "\0" not in text and text.encode()
    assert everything(queue) == before
    return text


# B1: sizes.


def test_invalid_payload_sizes_are_rejected(queue: MessageQueue) -> None:
    most = queue.config.max_message_len
    assert_rejected(queue, lambda: queue.enqueue_message("a", b""), EmptyMessage)
    for call in (
        lambda size: queue.enqueue_message("a", b"x" * size),
        lambda size: queue.enqueue_messages("a", [b"fine", b"x" * size]),
        lambda size: queue.enqueue_messages([("a", b"fine"), ("b", Message(b"x" * size))]),
        lambda size: queue.enqueue_message("a", b"x" * size, key="k"),
    ):
        for size in (most + 1, 100_000_000):
            text = assert_rejected(queue, lambda call=call, size=size: call(size), MessageTooLong)
            assert f"{size:,}" in text and f"{most:,}" in text and "heap_size" in text
    for payload in (b"x", b"y" * most, bytearray(b"z"), memoryview(b"w")):
        assert queue.enqueue_message("a", payload).count == 1
    assert [len(peeked.payload) for peeked in queue.inspect.peek("a")] == [1, most, 1, 1]
    for payload in (None, "text", 5, [b"x"], object()):
        assert_rejected(queue, lambda payload=payload: queue.enqueue_message("a", payload), InvalidMessage)
        assert_rejected(queue, lambda payload=payload: queue.enqueue_messages("a", [b"x", payload]), InvalidMessage)


def test_failing_iterator_sends_nothing(queue: MessageQueue) -> None:
    def messages() -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(5_000))
        raise ZeroDivisionError("an error of the sender")

    before = everything(queue)
    with pytest.raises(ZeroDivisionError):
        queue.enqueue_messages("a", messages())
    assert everything(queue) == before


# B2: text and bytes of every kind.

STRANGE = [
    "\u202eright to left\u202c", "𐍈😀", "e\u0301 and é", " spaces ", "' ; DROP TABLE mail; --", "../../etc",
    "%s {x} {{ y }}", "%(ring)s",
]  # fmt: skip


@pytest.mark.parametrize("text", STRANGE)
def test_unusual_text_is_kept(queue: MessageQueue, text: str) -> None:
    payload = text.encode() + b"\0\xff\xfe"
    queue.admin.change_ring(invisible_origins=True)
    queue.enqueue_message(text, payload, key=text, headers={text: text})
    queue.admin.pause(text, text)
    (peeked,) = queue.inspect.peek(text)
    assert peeked.payload == payload and peeked.headers == {text: text}
    assert dict(queue.footprints(prefix=text))[text].count == 1
    assert [(paused.origin, paused.reason) for paused in queue.admin.paused()] == [(text, text)]
    queue.admin.resume(text)
    seen: list[tuple[str, bytes, dict[str, str]]] = []
    queue.service_queues(lambda delivery: seen.append((delivery.origin, delivery.payload, dict(delivery.headers))))
    assert (text, payload, {text: text}) in seen
    assert [event.origin for event in queue.inspect.events(origin=text)] == [text]
    assert queue.enqueue_message(text, payload, key=text).repeated == 1


BROKEN = ["a lone \ud800 surrogate", "a NUL \0 inside", 5, b"bytes", ["list"], "x" * 70_000]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text)[:12])
def test_unstorable_text_is_rejected(queue: MessageQueue, text: Any) -> None:
    block = queue.blocks.plan()
    for call in (
        lambda: queue.enqueue_message(text, b"x"),
        lambda: queue.enqueue_message("a", b"x", key=text),
        lambda: queue.enqueue_messages("a", [Message(b"x", key=text)]),
        lambda: queue.enqueue_message("a", b"x", headers={"name": text}),
        lambda: queue.enqueue_message("a", b"x", headers=text),
        lambda: queue.admin.pause("a", text),
        lambda: queue.admin.resume(text),
        lambda: queue.sweep_queue(text),
        lambda: queue.admin.force_set_head(text),
        lambda: queue.blocks.plan(key=text),
        lambda: queue.footprint(text),
        lambda: queue.footprints(prefix=text),
        lambda: queue.inspect.peek(text),
        lambda: queue.reap_page(text, 0),
        lambda: queue.execute_overweight(Address(text, 0, 0), print),
        lambda: queue.set_aside.discard(Address(text, 0, 0), "why"),
        lambda: queue.set_aside.discard(Address("a", 0, 0), text),
        lambda: queue.blocks.report(block, [Report(text, 0, 0, 0)]),
        lambda: queue.admin.create_ring(text),
        lambda: queue.admin.set_origin(text, share=2),
        lambda: queue.blocks.list(text),
    ):
        assert_rejected(queue, call)
    for call in (lambda: queue.blocks.settle(text), lambda: queue.blocks.get(text), lambda: queue.blocks.renew(text)):
        assert_rejected(queue, call, UnknownBlock)
    with pytest.raises((UnknownRing, InvalidInput)):
        MessageQueue(queue.store, text)
    assert queue.check() == []


# B4: origins.


def test_invalid_origins_are_rejected_and_similar_ones_are_distinct(queue: MessageQueue) -> None:
    for origin in (
        "",
        "x" * 256,
        "é" * 128,
        "x" * 1_000,
        "line\nbreak",
        "carriage\r",
        "tab\t",
        "\x7f",
        "\u2028",
        "\x85",
    ):
        assert_rejected(queue, lambda origin=origin: queue.enqueue_message(origin, b"x"), InvalidOrigin)
        assert_rejected(
            queue, lambda origin=origin: queue.enqueue_messages([("fine", b"x"), (origin, b"x")]), InvalidOrigin
        )
    # Origins that look alike are different origins.
    twins = [
        "case",
        "Case",
        "CASE",
        "\u0430case",
        "acase",
        "e\u0301",
        "é",
        "x" * 255,
        "é" * 127,
        ".",
        "..",
        "a/b",
        "a//b",
    ]
    for origin in twins:
        queue.enqueue_message(origin, origin.encode())
    for origin in twins:
        assert [peeked.payload for peeked in queue.inspect.peek(origin)] == [origin.encode()]
    assert queue.inspect.ring_order() == ["here", *twins]
    done = queue.service_queues(lambda delivery: delivery.payload == delivery.origin.encode())
    assert done.processed == 2 + len(twins)
    assert queue.check() == []


# B5: weights and limits.

WEIGHTS = [
    (-1, 0), (0, -1), (math.nan, 1), (math.inf, 1), (1, -math.inf), (1e308, 1), (1.0, 1), (1 << 64, 1), (1,), (1, 2, 3), (),
    "1,2", "ab", ("1", "2"), {"time": 1}, {"time": 1, "size": 2, "more": 3}, {1: 1, 2: 2}, True, (True, 1), 0, 5, (None, 1),
    b"ab", [1, "2"], object(),
]  # fmt: skip


@pytest.mark.sqlite_first
@pytest.mark.parametrize("weight", WEIGHTS, ids=lambda weight: without_address(weight)[:24])
def test_invalid_weights_are_rejected(queue: MessageQueue, weight: Any) -> None:
    block = queue.blocks.plan()
    for call in (
        lambda: queue.enqueue_message("w", b"x", weight=weight),
        lambda: queue.enqueue_messages("w", [b"x"], weight=weight),
        lambda: queue.enqueue_messages("w", [Message(b"x", weight=weight)]),
        lambda: queue.blocks.plan(limit=weight),
        lambda: queue.service_queues(lambda delivery: None, weight),
        lambda: queue.admin.set_origin("w", most=weight),
        lambda: queue.admin.set_origin("w", least=weight),
        lambda: queue.execute_overweight(Address("w", 0, 0), print, weight),
        lambda: queue.blocks.plan_overweight(Address("w", 0, 0), weight),
        lambda: queue.admin.change_ring(service_weight=weight),
        lambda: queue.admin.create_ring("w", RingConfig(service_weight=weight)),
        lambda: queue.blocks.report(block, [Report("here", 0, 0, 0, Done(used=weight))]),
        lambda: queue.blocks.report(block, [Report("here", 0, 0, 0, Overweight(weight))]),
    ):
        assert_rejected(queue, call, InvalidWeight, ConfigRefused)


def test_sums_of_the_largest_weights_are_capped(queue: MessageQueue) -> None:
    largest = Weight((1 << 64) - 1, (1 << 64) - 1)
    queue.admin.change_ring(service_weight=largest)
    queue.enqueue_messages("w", [Message(b"a", weight=largest), Message(b"b", weight=largest)])
    queue.enqueue_messages("v", [Message(b"c", weight=Weight(1 << 63, 1)), Message(b"d", weight=Weight(0, 0))])
    for _ in range(10):
        queue.blocks.settle(queue.blocks.plan(limit=largest))
        queue.service_queues(lambda delivery: None, largest)
        assert queue.check() == []
    assert {footprint.count for _, footprint in queue.footprints()} <= {0}


def test_answer_with_invalid_weight_is_retried(queue: MessageQueue) -> None:
    """An invalid answer is handled like an exception: the message is retried."""
    for weight in WEIGHTS:
        for answer in (Done(used=weight), Overweight(weight)):
            assert queue.service_queues(lambda delivery, answer=answer: answer).processed == 0
            batches = batch_processor(lambda batch, answer=answer: [answer] * len(batch))
            assert queue.service_queues(batches).processed == 0
    assert queue.footprint("here").count == 2
    assert queue.check() == []


# Numbers and times.


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, 1e308, "x", b"", (1,), True, object(), -1], ids=without_address
)
def test_invalid_numbers_and_times_are_rejected(queue: MessageQueue, number: Any) -> None:
    block = queue.blocks.plan()
    calls: list[Callable[[], object]] = [
        lambda: queue.blocks.plan(lease=number),
        lambda: queue.blocks.renew(block, number),
        lambda: queue.admin.set_origin("a", share=number),
        lambda: queue.execute_overweight(Address("a", number, 0), print),
        lambda: queue.execute_overweight(Address("a", 0, number), print),
        lambda: queue.reap_page("a", number),
        lambda: queue.blocks.report(block, [Report("here", 0, number, 0)]),
        lambda: queue.blocks.report(block, [Report("here", number, 0, 0)]),
        lambda: queue.admin.change_ring(heap_size=number),
        lambda: queue.admin.change_ring(lease=number),
        lambda: queue.admin.change_ring(order=number),
        lambda: queue.admin.change_ring(weigher=number),
        lambda: queue.admin.change_ring(costs=number),
        lambda: queue.admin.change_ring(max_attempts=number),
        lambda: queue.admin.change_ring(backoff=number),
        lambda: queue.admin.change_ring(nonsense=number),
    ]
    if number != -1:
        # Times may be in the past.
        calls += [
            lambda: queue.enqueue_message("a", b"x", not_before=number),
            lambda: queue.enqueue_message("a", b"x", expires=number),
            lambda: queue.admin.pause("a", until=number),
        ]
    for call in calls:
        assert_rejected(queue, call)


# B6: payloads that look like JSON are plain bytes.


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 10_000 + b"]" * 10_000, b'{"a":1,"a":2}', b'{"a":' * 5_000, b"1e999999", b"NaN",
        json.dumps({"each": {"0": {"weight": [1, 2]}}}).encode(), b'"\\ud800"', b"{{ 1 }}{% raw %}",
    ],
    ids=lambda payload: payload[:12],
)  # fmt: skip
def test_payload_with_json_is_kept_as_bytes(queue: MessageQueue, payload: bytes) -> None:
    text = payload.decode()[:900]
    queue.enqueue_message("json", payload, key=text, headers={"h": text})
    block = queue.blocks.plan()
    (batch,) = [batch for batch in block.batches() if batch.origin == "json"]
    assert list(batch.payloads) == [payload]
    queue.blocks.report(block, [batch.answers([Yield(text)])[0]])
    queue.blocks.settle(block)
    assert [peeked.payload for peeked in queue.inspect.peek("json")] == [payload]


# Blocks and reports.

PLACES: list[Any] = [
    Report("here", 0, 0, 10**15), Report("here", 0, 0, 10**6), Report("here", 0, 1, 0),
    Report("here", 1 << 70, 0, 0), Report("here", 0, 0, 0, None), Report(None, 0, 0, 0), "report", None, ("here", 0, 0, 0),
]  # type: ignore[arg-type]  # fmt: skip
ANSWERS: list[Any] = [
    "done", Done(id=b"short"), Done(id="text"), Done(success="yes"), BadFormat(b"short"), BadFormat(7),
    Done(enqueue=[("", b"x")]), Done(enqueue=[("a", b"")]), Done(enqueue=[("a", b"x" * 70_000)]),
    Done(enqueue=[("a", "text")]), Done(enqueue="ab"), Done(enqueue=[("a", b"x", 1)]), Done(enqueue=5),
]  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    "report", [*PLACES, *(Report("here", 0, 0, 0, answer) for answer in ANSWERS)], ids=lambda report: repr(report)[:90]
)
def test_invalid_reports_are_rejected(queue: MessageQueue, report: Any) -> None:
    """No part of the call is stored, and the block can still be settled."""
    block = queue.blocks.plan()
    assert_rejected(queue, lambda: queue.blocks.report(block, [report]))
    assert_rejected(queue, lambda: queue.blocks.report(block, [Report("here", 0, 0, 0), report]))
    queue.blocks.report(block, [Report("here", 0, 0, 1)])
    assert queue.blocks.settle(block).processed == 2
    assert queue.check() == []


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: without_address(answer)[:70])
def test_invalid_answer_is_retried(queue: MessageQueue, answer: Any) -> None:
    """An invalid answer is no outcome: the message is retried, and nothing is stored."""
    assert queue.service_queues(lambda delivery: answer).processed == 0
    assert queue.service_queues(batch_processor(lambda batch: [answer] * len(batch))).processed == 0
    assert queue.footprint("here").count == 2
    assert queue.footprint("a").count == 0
    assert queue.check() == []
    assert queue.service_queues(lambda delivery: None).processed == 2


def test_processor_cannot_send_invalid_messages(queue: MessageQueue) -> None:
    for sent in [("", b"x"), ("a", b""), ("a", "text"), ("a\n", b"x"), ("a", b"x" * 70_000), (None, None)]:

        def processor(delivery: Delivery, sent: Any = sent) -> None:
            delivery.enqueue(*sent)

        assert queue.service_queues(processor).processed == 0
    assert queue.footprint("a").count == 0
    assert queue.footprint("here").count == 2
    assert queue.check() == []


def test_messages_of_a_batch_commit_with_the_whole_batch(queue: MessageQueue) -> None:
    """Messages sent during a batch are kept only if all of the batch is done."""

    def sending(batch: Batch) -> list[Any] | None:
        if batch.origin == "here":
            assert queue.enqueue_message("there", b"sent").count == 1
            return answers
        return None

    answers: list[Any] | None = [Done(), Yield()]
    queue.service_queues(batch_processor(sending))
    assert queue.footprint("here").count == 2
    assert queue.footprint("there").count == 0
    answers = None
    queue.service_queues(batch_processor(sending))
    assert queue.footprint("here").count == 0
    assert [event.origin for event in queue.inspect.events(name="Processed")] == ["here", "here", "there"]
    assert queue.check() == []


def test_reports_on_unclaimed_messages_are_ignored(queue: MessageQueue) -> None:
    """The claimed messages are settled regardless."""
    block = queue.blocks.plan()
    queue.blocks.report(
        block,
        [
            Report("nobody", 0, 0, 60_000),
            Report("here", 7, 0, 5),
            Report("here", 0, 0, 5, priority="high"),
            Report("here", 0, 0, 60_000),
        ],
    )
    assert queue.footprint("here").count == 0
    assert queue.footprint("nobody").count == 0
    queue.enqueue_message("nobody", b"later")
    assert queue.blocks.settle(block).processed == 2
    assert queue.footprint("nobody").count == 1
    assert queue.check() == []


@pytest.mark.parametrize("token", ["", "zz", "00", "0" * 32, "0" * 4_000, None, 5, b"0" * 16, "é" * 16, "'; DROP"])
def test_invalid_tokens_are_rejected(queue: MessageQueue, token: Any) -> None:
    for call in (
        lambda: queue.blocks.settle(token),
        lambda: queue.blocks.release(token),
        lambda: queue.blocks.renew(token),
        lambda: queue.blocks.report(token, [Report("here", 0, 0, 0)]),
        lambda: queue.blocks.get(token),
    ):
        assert_rejected(queue, call, UnknownBlock)


def test_tokens_of_other_or_ended_blocks_are_rejected(queue: MessageQueue) -> None:
    """The block belongs to another ring, has ended, or has expired."""
    queue.admin.create_ring("other")
    other = MessageQueue(queue.store, "other")
    other.enqueue_message("here", b"of the other ring")
    foreign = other.blocks.plan()
    for call in (
        lambda: queue.blocks.settle(foreign),
        lambda: queue.blocks.release(foreign),
        lambda: queue.blocks.renew(foreign),
        lambda: queue.blocks.report(foreign, [Report("here", 0, 0, 0)]),
    ):
        assert_rejected(queue, call, UnknownBlock)
    assert other.blocks.settle(foreign).returned == 1

    block = queue.blocks.plan()
    queue.blocks.release(block)
    assert "released" in assert_rejected(queue, lambda: queue.blocks.settle(block), TokenRefused)
    assert_rejected(queue, lambda: queue.blocks.report(block, [Report("here", 0, 0, 0)]), TokenRefused)
    assert_rejected(queue, lambda: queue.blocks.renew(block), TokenRefused)
    again = queue.blocks.plan()
    assert again.token != block.token
    queue.blocks.settle(again)
    assert "settled" in assert_rejected(queue, lambda: queue.blocks.release(again), TokenRefused)

    late = queue.blocks.plan(lease=0)
    assert "deadline" in assert_rejected(
        queue, lambda: queue.blocks.report(late, [Report("here", 0, 0, 0)]), TokenRefused
    )
    assert_rejected(queue, lambda: queue.blocks.renew(late), TokenRefused)


@pytest.mark.parametrize("outcome", [Yield(), Overweight(Weight(9_000_000, 9)), BadFormat()], ids=repr)
def test_execution_block_ends_with_any_outcome(queue: MessageQueue, outcome: Any) -> None:
    """A message that was not executed stays set aside, and its block ends."""
    queue.enqueue_message("a", b"heavy", weight=Weight(1 << 40, 0))
    queue.service_queues(lambda delivery: None)
    (aside,) = queue.set_aside.list()
    block = queue.blocks.plan_overweight(aside.address, Weight(1 << 41, 1 << 41))
    place = aside.address
    queue.blocks.report(block, [Report("a", place.page, place.index, place.index, outcome)])
    queue.blocks.settle(block)
    assert queue.blocks.list("planned") == []
    assert len(queue.set_aside.list()) == (0 if outcome == BadFormat() else 1)
    assert queue.blocks.plan().messages == 0
    assert queue.check() == []


def test_unknown_rings_are_rejected(queue: MessageQueue) -> None:
    for name in ("nowhere", "", "Default", "default ", "x" * 500, "' OR 1=1 --"):
        with pytest.raises(UnknownRing, match="default"):
            MessageQueue(queue.store, name)
    for name in ("", "with space", "1", "x" * 64, "ünïcode", "a;b", "a\nb"):
        assert_rejected(queue, lambda name=name: queue.admin.create_ring(name), ConfigRefused, InvalidInput)
