"""Enqueuing: counts, order, keys, due and expiry times, headers and declared weights."""

from __future__ import annotations

import pickle
import re
import threading
import tracemalloc
from collections import UserList
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_mq import Footprint, Message, MessageQueue, Weight
from airflow_mq.engine.queue.values import Enqueued
from airflow_mq.engine.rules.errors import (
    EmptyMessage,
    InvalidInput,
    InvalidMessage,
    InvalidOrigin,
    KeyConflict,
    MessageTooLong,
)
from airflow_mq.engine.store.inbox import MOST_DUE
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events, serve

NOTHING = Footprint(0, 0, 0, 0)


def test_message_is_enqueued_and_serviced(queue: MessageQueue) -> None:
    assert queue.enqueue_message("acme", b"hello") == Enqueued(1, 5)
    assert queue.footprint("acme") == Footprint(1, 1, 1, 5)
    assert serve(queue) == [("acme", b"hello")]
    assert queue.footprint("acme") == NOTHING


def test_many_messages_keep_their_order(queue: MessageQueue) -> None:
    bodies = [b"%d" % number for number in range(2_500)]
    assert queue.enqueue_messages("acme", bodies) == Enqueued(2_500, sum(map(len, bodies)))
    assert [payload for _, payload in serve(queue)] == bodies


def test_calls_of_every_size_keep_their_order(queue: MessageQueue) -> None:
    bodies = [b"%d" % number for number in range(300)]
    queue.enqueue_message("acme", bodies[0])
    queue.enqueue_messages("acme", bodies[1:20])
    for body in bodies[20:40]:
        queue.enqueue_message("acme", body)
    queue.enqueue_messages("acme", bodies[40:])
    assert [payload for _, payload in serve(queue)] == bodies


def test_one_call_enqueues_for_many_origins(queue: MessageQueue) -> None:
    pairs = [(f"o{number % 7}", b"%d" % number) for number in range(700)]
    assert queue.enqueue_messages(iter(pairs)).count == 700
    seen = serve(queue)
    for origin in {origin for origin, _ in pairs}:
        assert [pair for pair in seen if pair[0] == origin] == [pair for pair in pairs if pair[0] == origin]


def test_empty_calls_enqueue_nothing(queue: MessageQueue) -> None:
    assert queue.enqueue_messages("acme", []) == Enqueued(0, 0)
    assert queue.enqueue_messages([]) == Enqueued(0, 0)
    assert queue.footprints() == []


def test_pages_hold_messages_up_to_heap_size(make_queue: Maker) -> None:
    queue = make_queue(heap_size=45)
    queue.enqueue_messages("acme", [b"12345"] * 4)
    assert queue.footprint("acme") == Footprint(1, 1, 4, 20)
    queue.enqueue_message("acme", b"x" * 40)
    assert queue.footprint("acme") == Footprint(2, 2, 5, 60)


def test_too_long_message_rejects_the_whole_call(make_queue: Maker) -> None:
    queue = make_queue(heap_size=45)
    with pytest.raises(
        MessageTooLong, match=r"message too long \(41 bytes\): a page of this ring holds at most 40 bytes"
    ):
        queue.enqueue_messages("acme", [b"fine", b"x" * 41])
    with pytest.raises(MessageTooLong):
        queue.enqueue_messages([("other", b"fine"), ("acme", b"x" * 41)])
    assert queue.footprints() == []


@pytest.mark.parametrize(
    ("origin", "payload", "error"),
    [
        ("acme", b"", EmptyMessage),
        ("acme", "text", InvalidMessage),
        ("", b"x", InvalidOrigin),
        ("a" * 256, b"x", InvalidOrigin),
        ("a\nb", b"x", InvalidOrigin),
        ("\ud800", b"x", InvalidOrigin),
        (7, b"x", InvalidOrigin),
    ],
)
def test_invalid_messages_and_origins_are_rejected(
    queue: MessageQueue, origin: str, payload: bytes, error: type
) -> None:
    with pytest.raises(error):
        queue.enqueue_message(origin, payload)
    with pytest.raises(error):
        queue.enqueue_messages([("fine", b"x"), (origin, payload)])
    assert queue.footprints() == []


def test_origins_accept_any_visible_text(queue: MessageQueue) -> None:
    names = ["ä", "é" * 127, "日本", "a b", "a'b", 'a"b', "a%b", "a:1:2", "\U0001f600", "A", "a"]
    queue.enqueue_messages([(name, name.encode()) for name in names])
    assert {origin for origin, _ in queue.footprints()} == set(names)
    assert sorted(serve(queue)) == sorted((name, name.encode()) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("origins", [1, 50])
def test_iterator_is_not_held_in_memory(queue: MessageQueue, origins: int) -> None:
    count, body = 200_000, b"x" * 500

    def source() -> Iterator[tuple[str, bytes]]:
        for number in range(count):
            yield f"o{number % origins}", body + b"%d" % number

    tracemalloc.start()
    try:
        if origins == 1:
            sent = queue.enqueue_messages("o0", (payload for _, payload in source()))
        else:
            sent = queue.enqueue_messages(source())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{sent.size / 1e6:.0f} MB sent, {peak / 1e6:.0f} MB held at most")
    assert sent.count == count
    # Larger calls are spooled to a temporary file.
    assert peak < 50e6 < sent.size / 2


def test_failing_iterator_enqueues_nothing(queue: MessageQueue) -> None:
    def source() -> Iterator[bytes]:
        yield from [b"x"] * 5_000
        raise LookupError("the source is gone")

    with pytest.raises(LookupError):
        queue.enqueue_messages("acme", source())
    assert queue.footprints() == []


# Keys.


def test_key_is_accepted_once(queue: MessageQueue) -> None:
    assert queue.enqueue_message("acme", b"order", key="k1") == Enqueued(1, 5)
    assert queue.enqueue_message("acme", b"order", key="k1") == Enqueued(0, 0, repeated=1)
    assert serve(queue) == [("acme", b"order")]
    assert queue.enqueue_message("acme", b"order", key="k1").repeated == 1


def test_key_of_another_message_raises_key_conflict(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"order", key="k1")
    with pytest.raises(KeyConflict, match="'k1' of origin 'acme'"):
        queue.enqueue_message("acme", b"other", key="k1")
    with pytest.raises(KeyConflict):
        queue.enqueue_messages([("fine", b"x"), ("acme", Message(b"other", key="k1"))])
    assert queue.footprints() == [("acme", Footprint(1, 1, 1, 5))]


def test_keys_are_separate_per_origin(queue: MessageQueue) -> None:
    assert queue.enqueue_message("acme", b"order", key="k1").count == 1
    assert queue.enqueue_message("globex", b"order", key="k1").count == 1
    both = [
        ("acme", Message(b"order", key="k1")),
        ("birch", Message(b"x", key="k1")),
        ("birch", Message(b"x", key="k1")),
    ]
    assert queue.enqueue_messages(both) == Enqueued(1, 1, repeated=2)
    with pytest.raises(KeyConflict, match="'k1' of origin 'globex'"):
        queue.enqueue_message("globex", b"other", key="k1")
    assert queue.enqueue_message("acme", b"order", key="k1", priority="high").repeated == 1
    assert [origin for origin, _ in queue.footprints()] == ["acme", "birch", "globex"]


def test_key_is_accepted_again_after_its_window(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(key_window=0.2)
    queue.enqueue_message("acme", b"order", key="k1")
    clock.advance(0.199)
    assert queue.enqueue_message("acme", b"order", key="k1").repeated == 1
    clock.advance(0.001)
    assert queue.enqueue_message("acme", b"order", key="k1").count == 1
    assert queue.footprint("acme").count == 2


def test_repeated_keys_in_a_list_are_skipped(queue: MessageQueue) -> None:
    first = [Message(b"a", key="1"), b"plain", Message(b"bb", key="2")]
    assert queue.enqueue_messages("acme", first) == Enqueued(3, 8)
    again = [Message(b"a", key="1"), b"plain", Message(b"bb", key="2"), Message(b"ccc", key="3")]
    assert queue.enqueue_messages("acme", again) == Enqueued(2, 8, repeated=2)
    assert [payload for _, payload in serve(queue)] == [b"a", b"plain", b"bb", b"plain", b"ccc"]


def test_key_repeated_within_a_call_is_accepted_once(queue: MessageQueue) -> None:
    assert queue.enqueue_messages("acme", [Message(b"a", key="1"), Message(b"a", key="1")]) == Enqueued(1, 1, 1)
    with pytest.raises(KeyConflict):
        queue.enqueue_messages("acme", [Message(b"a", key="2"), Message(b"b", key="2")])
    assert queue.footprint("acme").count == 1


def test_keys_are_separate_per_ring(make_queue: Maker) -> None:
    first, other = make_queue("one"), make_queue("other")
    assert [q.enqueue_message("acme", b"x", key="k").count for q in (first, other)] == [1, 1]


# Time.


@pytest.mark.parametrize("delay", [1.0, "1s", "1000 ms", timedelta(seconds=1)])
def test_delayed_message_joins_when_it_is_due(
    queue: MessageQueue, clock: Clock, delay: float | str | timedelta
) -> None:
    queue.enqueue_message("acme", b"later", not_before=delay)
    queue.enqueue_message("acme", b"now")
    assert serve(queue) == [("acme", b"now")]
    queue.enqueue_message("acme", b"second")
    clock.advance(1.0)
    assert queue.footprint("acme").count == 2
    assert [payload for _, payload in serve(queue)] == [b"second", b"later"]


def test_due_time_in_the_past_joins_at_once(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"], not_before=datetime.now(timezone.utc) - timedelta(hours=1))
    assert queue.footprint("acme") == Footprint(1, 1, 2, 2)
    assert [message.payload for message in queue.inspect.peek("acme")] == [b"a", b"b"]
    assert queue.inspect.ring_order() in ([], ["acme"])
    assert serve(queue) == [("acme", b"a"), ("acme", b"b")]


def test_delayed_messages_join_in_order(queue: MessageQueue, clock: Clock) -> None:
    pairs = [(f"o{number % 3}", b"%d" % number) for number in range(30)]
    queue.enqueue_messages(pairs, not_before=timedelta(seconds=0.5))
    assert queue.footprint("o0").count == 0
    clock.advance(0.5)
    assert queue.footprint("o0").count == 10
    seen = serve(queue)
    for origin in ("o0", "o1", "o2"):
        assert [pair for pair in seen if pair[0] == origin] == [pair for pair in pairs if pair[0] == origin]


@pytest.mark.parametrize("most", [{"most": 2}, {"most_size": 2}])
def test_due_messages_join_in_parts(
    queue: MessageQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch, most: dict[str, int]
) -> None:
    monkeypatch.setattr("airflow_mq.engine.store.inbox.MOST_DUE", MOST_DUE | most)
    for payload in b"12345":
        queue.enqueue_message("acme", bytes([payload]), not_before=0.5)
    clock.advance(0.5)
    block = queue.blocks.plan()
    assert [batch.payloads for batch in block.batches()] == [[b"1", b"2"]]
    queue.blocks.release(block)
    seen = []
    while len(queue):
        seen += [payload for _, payload in serve(queue)]
    assert seen == [b"1", b"2", b"3", b"4", b"5"]


def test_key_of_a_delayed_message_is_accepted_once(queue: MessageQueue, clock: Clock) -> None:
    assert queue.enqueue_message("acme", b"x", key="k", not_before=0.2).count == 1
    assert queue.enqueue_message("acme", b"x", key="k", not_before=0.2).repeated == 1
    clock.advance(0.2)
    assert queue.footprint("acme").count == 1


@pytest.mark.parametrize("when", [datetime(2030, 1, 1), "soon", "-1s", float("nan"), 1e10, True])
def test_invalid_times_are_rejected(queue: MessageQueue, when: object) -> None:
    for name in ("not_before", "expires"):
        with pytest.raises(InvalidInput):
            queue.enqueue_message("acme", b"x", **{name: when})
    assert queue.footprints() == []


@pytest.mark.parametrize("when", [-1, timedelta(days=-1), datetime(2020, 1, 1, tzinfo=timezone.utc)])
def test_an_expiry_in_the_past_is_logged(
    queue: MessageQueue, caplog: pytest.LogCaptureFixture, when: float | timedelta | datetime
) -> None:
    """A repeated call is accepted: its messages may be stored, and its sender wants to know."""
    queue.enqueue_message("acme", b"x", key="k", expires=3600)
    assert "in the past" not in caplog.text
    assert queue.enqueue_message("acme", b"x", key="k", expires=when).repeated == 1
    assert "is in the past: no message of this call will be processed" in caplog.text


def test_expired_message_is_dropped_by_service(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"a", b"b"], expires=-1)
    queue.enqueue_message("acme", b"c")
    queue.enqueue_message("acme", b"d", expires=3600)
    assert serve(queue) == [("acme", b"c"), ("acme", b"d")]
    assert logged_events(queue) == [
        ("Expired", "acme", 0, 0), ("Expired", "acme", 0, 1), ("Processed", "acme", 0, 2), ("Processed", "acme", 0, 3)
    ]  # fmt: skip


def test_expired_message_is_dropped_by_a_block(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a", expires=-1)
    queue.enqueue_message("acme", b"b")
    block = queue.blocks.plan()
    assert [list(batch.payloads) for batch in block.batches()] == [[b"b"]]
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    done = queue.blocks.settle(block)
    assert (done.processed, done.expired) == (1, 1)
    assert [name for name, *_ in logged_events(queue)] == ["Expired", "Processed"]


# Declared weights and headers.


def test_declared_weight_is_the_processing_cost(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a", weight=Weight(70, 3))
    queue.enqueue_messages("acme", [b"b", Message(b"c", weight=Weight(5, 5))], weight=Weight(20, 1))
    result = queue.service_queues(lambda delivery: True)
    assert result.weight == Weight(95, 9)
    assert [event.weight for event in queue.inspect.events()] == [(70, 3), (20, 1), (5, 5)]


def test_headers_reach_readers_batches_and_processors(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"a", headers={"traceparent": "00-1"})
    queue.enqueue_messages("acme", [b"b", Message(b"c", headers={"own": "2"})], headers={"all": "3"})
    queue.enqueue_message("acme", b"d")
    wanted = [{"traceparent": "00-1"}, {"all": "3"}, {"own": "2"}, {}]
    assert [dict(message.headers) for message in queue.inspect.peek("acme")] == wanted
    block = queue.blocks.plan()
    batches = list(block.batches())
    assert [dict(headers) for batch in batches for headers in batch.headers] == wanted
    queue.blocks.release(block)
    seen: list[dict[str, str]] = []
    queue.service_queues(lambda delivery: seen.append(dict(delivery.headers)))
    assert seen == wanted


def test_batches_footprints_predicts_added_pages(make_queue: Maker) -> None:
    queue = make_queue(heap_size=45)
    queue.enqueue_messages("acme", [b"12345"] * 3)
    answer = queue.batches_footprints("acme", [b"12345"] * 6, 2)
    assert answer.first_page_position == 30
    assert [(footprint.messages, footprint.size, footprint.new_pages) for footprint in answer.footprints] == [
        (1, 5, 0), (2, 10, 1), (3, 15, 1), (4, 20, 1), (5, 25, 1)
    ]  # fmt: skip
    assert queue.footprint("acme").count == 3


@pytest.mark.concurrency
def test_threads_enqueue_while_a_service_runs(make_queue: Maker) -> None:
    # SQLite admits one writer at a time, and in no fixed order.
    queue = make_queue(order="rotation", patience=120)

    def send(name: str) -> None:
        for number in range(40):
            queue.enqueue_message(name, b"%d" % number)
        queue.enqueue_messages(name, [b"%d" % number for number in range(40, 80)])

    threads = [threading.Thread(target=send, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    seen: list[tuple[str, bytes]] = []
    while any(thread.is_alive() for thread in threads):
        seen += serve(queue)
    for thread in threads:
        thread.join()
    seen += serve(queue)
    for number in range(4):
        assert [payload for origin, payload in seen if origin == f"t{number}"] == [b"%d" % at for at in range(80)]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("acme", b"abc"), "one message (bytes) given as many"),
        (("acme", "abc"), "one message (str) given as many"),
        (("acme", Message(b"abc")), "one message (Message) given as many"),
        (([b"abc"],), "messages without origins (bytes): expected pairs of origin and message"),
        (([b"ab"],), "messages without origins (bytes)"),
        ((range(3),), "messages without origins (int)"),
        (({"acme": b"abc"},), "messages without origins (str)"),
        (([Message(b"abc")],), "messages without origins (Message)"),
    ],
)
def test_a_wrong_form_of_messages_is_named(queue: MessageQueue, given: Any, error: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(error)):
        queue.enqueue_messages(*given)
    assert queue.enqueue_messages([]).count == 0
    assert queue.enqueue_messages(("acme", b"%d" % n) for n in range(2)).count == 2
    assert queue.footprint("acme").count == 2


def test_a_message_that_expires_at_the_epoch_has_expired(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x", expires=datetime(1970, 1, 1, tzinfo=timezone.utc))
    assert serve(queue) == [] and queue.footprint("acme").count == 0


@pytest.mark.parametrize(("due", "expires"), [(10, 9), (10, 5), (timedelta(hours=1), timedelta(minutes=59)), (10, -1)])
def test_a_message_that_expires_before_it_is_due_is_refused(queue: MessageQueue, due: Any, expires: Any) -> None:
    with pytest.raises(InvalidInput, match="not after not_before"):
        queue.enqueue_message("acme", b"x", not_before=due, expires=expires)
    queue.enqueue_message("acme", b"x", not_before=5, expires=3600)


def test_a_row_of_a_driver_is_a_pair(queue: MessageQueue) -> None:
    """Some drivers return rows that are sequences and no tuples."""
    rows = [UserList(["acme", b"1"]), UserList(["acme", b"2"])]
    assert queue.enqueue_messages(rows).count == 2
    assert queue.enqueue_messages(iter(rows)).count == 2
    assert queue.footprint("acme").count == 4


def test_an_unknown_option_is_named(queue: MessageQueue) -> None:
    options: dict[str, Any] = {"key": "k"}
    with pytest.raises(TypeError, match=r"unknown option 'key': expected some of weight, .* Message\(payload, key="):
        queue.enqueue_messages("acme", [b"one"], **options)


def test_a_pickled_queue_is_refused(queue: MessageQueue) -> None:
    with pytest.raises(TypeError, match="a MessageQueue cannot be pickled: open one where it is used"):
        pickle.dumps(queue)
