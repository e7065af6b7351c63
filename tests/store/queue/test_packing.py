"""Packing: plain messages and those with attributes become the same rows, and a session that forgot its statements sends."""

from __future__ import annotations

from contextlib import closing
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import Message, MessageQueue, RingConfig
from airflow_mq.engine.queue.sending import packing
from airflow_mq.engine.queue.sending.packing import PackedCall
from airflow_mq.engine.rules.config import HEADER_SIZE
from airflow_mq.engine.rules.errors import InvalidMessage, InvalidOrigin
from airflow_mq.engine.store import parse, upgrade

CONFIG = RingConfig(heap_size=1_024)
LONGEST = CONFIG.max_message_len
PAYLOADS = st.sampled_from([b"", b"a", b"bc", bytes(LONGEST - 1), bytes(LONGEST), bytes(LONGEST + 1)])
PAIRS = st.lists(st.tuples(st.sampled_from("abc"), PAYLOADS), max_size=6)


@given(PAIRS)
def test_plain_messages_are_packed_as_those_with_attributes(pairs: list[tuple[str, bytes]]) -> None:
    plain, single = PackedCall(CONFIG), PackedCall(CONFIG)
    try:
        rows = sorted(plain.pack(pairs).rows())
    except InvalidMessage:
        with pytest.raises(InvalidMessage):
            single.pack((origin, Message(payload)) for origin, payload in pairs)
        return
    assert rows == sorted(single.pack((origin, Message(payload)) for origin, payload in pairs).rows())
    assert (plain.count, plain.size) == (len(pairs), sum(len(payload) for _, payload in pairs))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 200)), max_size=60), st.integers(1, 20))
def test_rows_hold_at_most_a_page_and_keep_the_order(lengths: list[tuple[str, int]], stretch: int) -> None:
    pairs = [(origin, bytes([number]) * length) for number, (origin, length) in enumerate(lengths)]
    config = RingConfig(heap_size=1_024)
    with (
        mock.patch.object(packing, "STRETCH", stretch),
        mock.patch.object(packing, "HELD", 4_096),
        closing(PackedCall(config).pack(pairs)) as call,
    ):
        rows = list(call.rows())
    found: dict[str, bytes] = {}
    for row in rows:
        assert row.size + row.items * HEADER_SIZE <= config.heap_size
        found[row.origin] = found.get(row.origin, b"") + row.heap
    sent: dict[str, bytes] = {}
    for origin, payload in pairs:
        sent[origin] = sent.get(origin, b"") + payload
    assert found == sent


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 200), st.sampled_from(["", "new", "used"]))),
    st.integers(1, 9),
)
def test_the_last_row_of_each_queue_ends_its_call(sent: list[tuple[str, int, str]], stretch: int) -> None:
    """Listeners are called for such a row: whichever keys are refused, and wherever the rows are flushed."""
    pairs = [
        (origin, Message(bytes(length), key=f"{kind} {number}" if kind else None))
        for number, (origin, length, kind) in enumerate(sent)
    ]
    with (
        mock.patch.object(packing, "STRETCH", stretch),
        mock.patch.object(packing, "HELD", 500),
        closing(PackedCall(CONFIG).pack(pairs)) as call,
    ):
        rows = list(call.rows([place for place, row in call.keys.items() if row.key.startswith("used")]))
    assert not any({row.origin: row.more for row in rows}.values())


def test_an_invalid_origin_among_pairs_is_refused() -> None:
    with pytest.raises(InvalidOrigin):
        PackedCall(CONFIG).pack([("a", b"x"), ("", b"y")])


@pytest.mark.postgres
def test_sending_goes_on_after_the_session_forgot_its_statements(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        for _ in range(2):
            queue.enqueue_message("a", b"one")
            queue.enqueue_messages([(f"o{number}", b"x") for number in range(2)])
            queue.enqueue_messages([(f"o{number}", b"x") for number in range(100)])
            queue.store.lent().connection.execute("DEALLOCATE ALL")
        assert queue.footprint("a").count == 2
        assert [queue.footprint(f"o{number}").count for number in (0, 1, 99)] == [4, 4, 2]
        assert queue.check() == []
