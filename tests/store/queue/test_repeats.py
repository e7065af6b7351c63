"""Rows that a sender may send again: each is enqueued once, in any order, also by attempts side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pytest

from airflow_mq import Message, MessageQueue
from airflow_mq.engine.queue.sending.repeats import DIGEST, RepeatedSender, SentRow
from airflow_mq.engine.queue.sending.sender import Sender
from airflow_mq.engine.rules.errors import CommitInDoubt


def rows(*payloads: bytes) -> list[SentRow]:
    return [SentRow(blake2b(payload, digest_size=DIGEST).digest(), "a", payload) for payload in payloads]


def sender(queue: MessageQueue, name: str = "job/0") -> RepeatedSender:
    return RepeatedSender(Sender(queue.session), name)


def waiting(queue: MessageQueue) -> list[bytes]:
    return [payload for batch in queue.inspect.waiting("a", limit=1000) for payload in batch.payloads]


def send(one: RepeatedSender, *payloads: bytes) -> tuple[int, int]:
    sent = one.send(rows(*payloads))
    return sent.count, sent.repeated


def test_a_longer_name_concerns_no_shorter_one(make_queue: Any) -> None:
    queue = make_queue()
    assert send(sender(queue, "job/0/3"), b"1") == (1, 0)
    one = sender(queue, "job/0")
    assert [send(one, b"1"), send(one, b"2")] == [(1, 0), (1, 0)]
    assert send(sender(queue, "job/0"), b"2", b"1", b"3") == (1, 2)
    assert send(sender(queue, "job/0/3"), b"1", b"3") == (1, 1)


def test_a_repeated_attempt_enqueues_only_what_is_missing(make_queue: Any) -> None:
    queue = make_queue()
    first = sender(queue)
    assert [send(first, b"1", b"2", b"2"), send(first, b"3")] == [(3, 0), (1, 0)]

    # In another order, in other chunks, and with rows that the first attempt did not have.
    again = sender(queue)
    assert [send(again, b"3", b"2"), send(again, b"4", b"2", b"1", b"2")] == [(0, 2), (2, 2)]
    assert [send(sender(queue), b"1", b"2", b"2", b"2", b"3", b"4"), send(sender(queue, "job/1"), b"1")] == [
        (0, 6),
        (1, 0),
    ]
    assert sorted(waiting(queue)) == [b"1", b"1", b"2", b"2", b"2", b"3", b"4"]


def test_a_repeated_chunk_costs_its_own_rows_only(make_queue: Any) -> None:
    queue = make_queue()
    send(sender(queue), b"1", b"2", b"2", b"3")

    class Known(Counter[bytes]):
        """Digests that are never walked."""

        def items(self) -> Any:
            raise AssertionError

        keys = values = __iter__ = items

    again = sender(queue)
    known = again._known = Known(dict(again._known))
    assert [send(again, b"2", b"1"), send(again, b"2", b"4")] == [(0, 2), (1, 1)]
    assert len(known) == 1
    assert [send(again, b"3"), send(again, b"3")] == [(0, 1), (1, 0)]


def test_attempts_side_by_side_enqueue_each_row_once(make_queue: Any) -> None:
    queue = make_queue()
    one, other = sender(queue), sender(queue)

    assert send(one, b"1", b"2") == (2, 0)
    assert send(other, b"3", b"1") == (1, 1)
    assert send(one, b"3", b"4") == (1, 1)
    assert send(other, b"2", b"4") == (0, 2)
    assert waiting(queue) == [b"1", b"2", b"3", b"4"]


def test_a_lost_answer_is_no_second_message(make_queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue()
    one = sender(queue)

    def lose(call: Any) -> None:
        raise CommitInDoubt("the connection was lost")

    monkeypatch.setattr(one.sender, "committed", lose)
    with pytest.raises(CommitInDoubt):
        send(one, b"1", b"2")
    monkeypatch.undo()

    assert [send(one, b"1", b"2"), send(one, b"3")] == [(0, 2), (1, 0)]
    assert waiting(queue) == [b"1", b"2", b"3"]


def test_rows_with_keys_and_headers_keep_their_order(make_queue: Any) -> None:
    queue = make_queue()
    given: Sequence[SentRow] = [
        *rows(b"1"), SentRow(None, "a", Message(b"2", "key")), SentRow(b"x" * DIGEST, "a", Message(b"3", headers={"h": "v"})),
    ]  # fmt: skip

    assert [(sent.count, sent.repeated) for sent in (sender(queue).send(given) for _ in range(2))] == [(3, 0), (0, 3)]

    batches = list(queue.inspect.waiting("a", limit=2))
    assert [payload for batch in batches for payload in batch.payloads] == [b"1", b"2"]
    assert [dict(texts) for batch in queue.inspect.waiting("a", limit=9) for texts in batch.headers][2:] == [{"h": "v"}]


def test_waiting_messages_are_those_that_no_block_holds(make_queue: Any) -> None:
    queue = make_queue()
    queue.enqueue_messages("a", [b"%03d" % number for number in range(50)])
    block = queue.blocks.plan()
    queue.enqueue_messages("a", [b"new"], priority="high")
    assert waiting(queue) == [b"new"]
    queue.blocks.release(block)
    assert waiting(queue) == [b"new", *(b"%03d" % number for number in range(50))]
