"""Plain calls: the short way packs the same rows as the general one, and sends with the settings that the session has read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import MessageQueue, RingConfig
from airflow_mq.core.errors import InvalidOrigin
from airflow_mq.core.message import check_origin
from airflow_mq.queue.sending.packing import Packer
from airflow_mq.queue.sending.plain import plain_rows
from airflow_mq.store import parse, upgrade

CONFIG = RingConfig()
LONGEST = CONFIG.max_message_len
PAYLOADS = st.sampled_from([b"", b"a", b"bc", bytes(LONGEST - 1), bytes(LONGEST), bytes(LONGEST + 1)])
PAIRS = st.lists(st.tuples(st.sampled_from("abc"), PAYLOADS), max_size=6)


@given(PAIRS)
def test_plain_calls_pack_the_rows_of_the_general_way(pairs: list[tuple[str, bytes]]) -> None:
    rows = plain_rows(pairs, None, check_origin, CONFIG.heap_size)
    if rows is not None:
        assert rows == [packed.row for packed in Packer(CONFIG, {}).pack(pairs)]
    one = plain_rows("a", [payload for _, payload in pairs], check_origin, CONFIG.heap_size)
    if one is not None:
        assert one == [packed.row for packed in Packer(CONFIG, {}).pack_one("a", [payload for _, payload in pairs])]


@pytest.mark.parametrize("messages", [[], [b""], [b"a", bytearray(b"b")], [bytes(LONGEST + 1)], iter([b"a"]), ["a"]])
def test_other_calls_are_left_to_the_general_way(messages: Any) -> None:
    assert plain_rows("a", messages, check_origin, CONFIG.heap_size) is None
    if not isinstance(messages, list):
        assert list(messages) == [b"a"]


def test_an_invalid_origin_among_pairs_is_refused() -> None:
    with pytest.raises(InvalidOrigin):
        plain_rows([("a", b"x"), ("", b"y")], None, check_origin, CONFIG.heap_size)


@pytest.mark.postgres
def test_sending_goes_on_after_the_session_forgot_its_statements(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        for _ in range(2):
            queue.enqueue_message("a", b"one")
            queue.enqueue_messages([(f"o{number}", b"x") for number in range(2)])
            queue.enqueue_messages([(f"o{number}", b"x") for number in range(100)])
            queue.store.connection().execute("DEALLOCATE ALL")
        assert queue.footprint("a").count == 2
        assert [queue.footprint(f"o{number}").count for number in (0, 1, 99)] == [4, 4, 2]
        assert queue.check() == []
