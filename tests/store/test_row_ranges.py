"""Inbox rows read and deleted by ranges of ids: other rows among them stay where they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import StoreCorrupt
from airflow_mq.engine.rules.message import Posted
from airflow_mq.engine.store.inbox import MANY_ROWS, RowRange
from airflow_mq.engine.store.rows import LATEST, InboxRow, posted_row
from airflow_mq.engine.store.unit import Unit

SENT = 2 * MANY_ROWS


@pytest.fixture
def queue(store_uri: str) -> Iterator[MessageQueue]:
    with MessageQueue(store_uri) as queue:
        for number in range(SENT):
            queue.enqueue_message("acme", b"%d" % number, headers={"n": str(number)} if number % 3 == 0 else None)
            queue.enqueue_message("globex", b"of another queue")
        yield queue


def ids_of(unit: Unit, queue: MessageQueue, origin: str = "acme") -> list[int]:
    return [row[1] for row in unit.inbox.after(queue.session.ring_id, [(origin, -1)], LATEST)]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_rows_that_are_wanted_are_read_and_no_others(queue: MessageQueue, step: int) -> None:
    ring = queue.session.ring_id
    with queue.store.reading() as unit:
        ids = ids_of(unit, queue)[::step]
        wanted = {"acme": ids, "globex": ids_of(unit, queue, "globex")[:1]}
        heaps = {row[1]: bytes(row[7]) for row in unit.inbox.heaps(ring, wanted)}
        assert heaps == {
            **{row_id: b"%d" % (at * step) for at, row_id in enumerate(ids)},
            wanted["globex"][0]: b"of another queue",
        }
        facts = unit.inbox.heads(ring, wanted)
        with_headers = {row.id for row in facts if row.attributes}
        assert with_headers == {row_id for at, row_id in enumerate(ids) if at * step % 3 == 0}
        assert sorted(row.id for row in facts) == sorted([*ids, *wanted["globex"]])
        assert all(row.sent_at > 0 for row in facts)


@pytest.mark.parametrize(
    ("known", "others"),
    [((), ["acme", "globex"]), (("acme",), ["globex"]), (("a", "globex"), ["acme"]), (("acme", "globex"), [])],
)
def test_a_look_by_origin_leaves_known_queues_out(
    queue: MessageQueue, known: tuple[str, ...], others: list[str]
) -> None:
    with queue.store.reading() as unit:
        found = queue.session.stored_working_set(unit).reading.news_by_origin(known)
        assert found == [(ids_of(unit, queue, name)[0], name) for name in others]


def test_a_range_of_known_rows_is_deleted(queue: MessageQueue) -> None:
    ring = queue.session.ring_id
    with queue.store.writing() as unit:
        first, *inner, last = ids_of(unit, queue)
        assert unit.inbox.delete_ranges(ring, [RowRange("acme", inner[0], inner[-1], len(inner))])()
        assert ids_of(unit, queue) == [first, last]
        assert len(ids_of(unit, queue, "globex")) == SENT


@pytest.mark.parametrize("more", [-1, 1])
def test_a_range_with_other_rows_than_known_is_kept(queue: MessageQueue, more: int) -> None:
    ring = queue.session.ring_id
    with queue.store.writing() as unit:
        before = ids_of(unit, queue)
        middle = len(before) // 2
        ranges = [
            RowRange("acme", before[0], before[middle - 1], middle + more),
            RowRange("acme", before[middle], before[-1], middle),
        ]
        assert not unit.inbox.delete_ranges(ring, ranges)()
        assert ids_of(unit, queue) == before[:middle]


def test_a_row_that_came_late_stays_when_its_neighbours_are_deleted(queue: MessageQueue) -> None:
    """A row among those of a page that lies in no page: as a sender leaves it that commits late."""
    ring = queue.session.ring_id
    queue.service_queues(lambda delivery: None)
    with queue.store.writing() as unit:
        assert ids_of(unit, queue) == []
    with queue.store.writing() as unit:
        drawn = unit.fresh_ids(SENT)
        late = drawn.pop(SENT // 2)
        unit.inbox.insert(ring, [posted_row(row_id, Posted("acme", b"in time")) for row_id in drawn])
    queue.blocks.release(queue.blocks.plan())
    with queue.store.writing() as unit:
        unit.inbox.insert(ring, [posted_row(late, Posted("acme", b"late"))])
    served: list[bytes] = []
    queue.service_queues(lambda delivery: served.append(delivery.payload))
    assert served == [b"in time"] * len(drawn)
    with queue.store.reading() as unit:
        assert ids_of(unit, queue) == [late]


def test_a_payload_that_lost_bytes_is_reported(queue: MessageQueue) -> None:
    ring = queue.session.ring_id
    with queue.store.writing() as unit:
        row_id = ids_of(unit, queue, "globex")[-1]
        unit.inbox.delete(ring, [("globex", row_id, None)])
        unit.inbox.insert(ring, [InboxRow("globex", row_id, 5, 1, False, b"", b"", b"1234")])
    with pytest.raises(StoreCorrupt):
        queue.service_queues(lambda delivery: None)
