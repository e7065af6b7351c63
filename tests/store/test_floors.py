"""The floor of an inbox passes no row that lies in no page; rows that were deleted by their range are not read again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import MessageQueue, batch_processor
from airflow_mq.engine.queue.values import Batch
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.inbox import Inbox
from airflow_mq.engine.store.working_set.writer import gaps_between

IDS = st.integers(0, 60)


@given(IDS, IDS, st.lists(st.tuples(IDS, st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))))
def test_gaps_are_all_that_ranges_leave(first: int, below: int, ranges: list[tuple[int, int]]) -> None:
    found = [id_ for start, stop in gaps_between(first, below, sorted(ranges)) for id_ in range(start, stop)]
    assert found == [id_ for id_ in range(first, below) if not any(start <= id_ <= last for start, last in ranges)]


def test_deleted_rows_are_not_read_again(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        for _ in range(40):
            queue.enqueue_messages((origin, bytes(4_000)) for origin in ("a", "b"))
        asked: list[tuple[str, int, int]] = []
        between = Inbox.ids_between

        def counted(self: Inbox, ring: int, requests: Sequence[tuple[str, int, int]]) -> list[tuple[str, list[int]]]:
            asked.extend(requests)
            return between(self, ring, requests)

        monkeypatch.setattr(Inbox, "ids_between", counted)

        @batch_processor
        def process(batch: Batch) -> None:
            assert batch.payloads

        assert queue.service_queues(process).processed == 80
        assert queue.footprint("a").count == 0
        # Two pages and a part of a third of each queue; a gap lies before, between and behind their inner rows.
        assert {origin for origin, _, _ in asked} == {"a", "b"}
        assert sum(below - first for _, first, below in asked) < 80
        assert queue.check() == []
