"""Adapters stop at a full queue, leave its messages at the source, and go on later: nothing is lost or passed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.adapters import Arrived, receive
from airflow_mq.adapters.landing import LandingFolder
from airflow_mq.engine.store import parse, upgrade


@pytest.fixture
def queue(sqlite_uri: str) -> Any:
    upgrade(parse(sqlite_uri))
    with MessageQueue(sqlite_uri) as queue:
        yield queue


class InOrder:
    """A source that is read in order only, as a topic is: it goes on behind the last committed message."""

    def __init__(self, messages: Sequence[tuple[str, bytes]]) -> None:
        self.messages, self.committed, self.refused = list(messages), 0, list[str]()

    def fetch(self, most: int) -> Sequence[Arrived]:
        chosen = list(enumerate(self.messages))[self.committed : self.committed + most]
        return [Arrived(str(n), origin, data, str(n), size=len(data)) for n, (origin, data) in chosen]

    def commit(self, arrived: Sequence[Arrived]) -> None:
        assert [int(item.key) for item in arrived] == list(range(self.committed, self.committed + len(arrived)))
        self.committed += len(arrived)

    def refuse(self, arrived: Arrived, why: str) -> None:
        self.commit([arrived])
        self.refused.append(why)

    def close(self) -> None:
        """Release nothing."""


def drained(queue: MessageQueue) -> list[tuple[str, bytes]]:
    seen: list[tuple[str, bytes]] = []
    queue.service_queues(lambda delivery: seen.append((delivery.origin, delivery.payload)))
    return seen


def test_a_source_in_order_stops_at_a_full_queue_and_goes_on(
    queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.admin.set_origin("a", quota=10)
    messages = [("a", b"1" * 6), ("b", b"2"), ("a", b"3" * 6), ("b", b"4"), ("b", b""), ("a", b"5" * 4), ("b", b"6")]
    source, seen = InOrder(messages), list[tuple[str, bytes]]()
    first = receive(queue, source)
    assert (first.count, first.left, source.committed) == (2, 4, 2) and not source.refused
    assert "4 left at the source; the log states why" in str(first)
    assert [record.getMessage()[:30] for record in caplog.records] == ["'2' is left for a later run: q"]
    assert receive(queue, source).count == 0
    for _ in range(3):
        seen += drained(queue)
        receive(queue, source)
    seen += drained(queue)
    assert source.committed == len(messages) and len(source.refused) == 1
    for origin in "ab":
        assert [data for name, data in seen if name == origin] == [d for o, d in messages if o == origin and d]


def test_a_folder_leaves_the_files_of_a_full_queue(queue: MessageQueue, tmp_path: Path) -> None:
    # Each header, the path, counts as 41 bytes of JSON.
    queue.admin.set_origin("a", quota=92)
    for name, size in (("a/1", 6), ("a/2", 6), ("a/3", 2), ("b/1", 50)):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * size)
    seen = []
    for left in (2, 0):
        source = LandingFolder(tmp_path, "{origin}/*", settle=0)
        done = receive(queue, source)
        source.close()
        # No smaller file passes the one that has no room.
        assert done.left == left and not done.refused
        seen += [len(data) for origin, data in drained(queue) if origin == "a"]
    assert seen == [6, 6, 2]


@pytest.mark.parametrize("why", ["quota", "origins"])
def test_a_folder_opens_few_files_of_a_full_queue_and_warns_once(
    queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    if why == "quota":
        queue.admin.set_origin("a", quota=10)
    else:
        queue.admin.change_ring(max_origins=1)
        queue.enqueue_message("b", b"x")
    (tmp_path / "a").mkdir()
    for number in range(12):
        (tmp_path / "a" / str(number)).write_bytes(b"x" * 11)
    source = LandingFolder(tmp_path, "{origin}/*", settle=0)
    opened, open_ = [], source.place.open
    monkeypatch.setattr(source.place, "open", lambda found: (opened.append(found), open_(found))[1])
    assert receive(queue, source, batch=2).left == 12
    assert len(opened) == 2 and len([one for one in caplog.records if one.levelname == "WARNING"]) == 1
    source.close()


def test_a_folder_uploads_little_for_a_full_queue(
    queue: MessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.admin.set_origin("a", quota=10)
    (tmp_path / "a").mkdir()
    for number in range(12):
        (tmp_path / "a" / str(number)).write_bytes(bytes([number]) * 100_000)
    uploaded, put = [], queue.payloads.put
    monkeypatch.setattr(queue.payloads, "put", lambda *args: (uploaded.append(args), put(*args))[1])
    with_source = LandingFolder(tmp_path, "{origin}/*", settle=0)
    assert receive(queue, with_source, batch=2).left == 12
    assert len(uploaded) == 2
    with_source.close()


def test_a_landing_that_is_used_for_further_runs_leaves_nothing_out(queue: MessageQueue, tmp_path: Path) -> None:
    def drop(name: str, data: bytes) -> None:
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(data)

    queue.admin.set_origin("a", quota=92)
    for name, size in (("0", 0), ("1", 6), ("2", 6), ("3", 2)):
        drop(name, name.encode() * size)
    source, seen = LandingFolder(tmp_path, "{origin}/*", settle=0), list[bytes]()
    for name in ("4", "5", "0"):
        receive(queue, source)
        seen += [data[:1] for _, data in drained(queue)]
        drop(name, name.encode())
    # No newer file passed those that were left, and a corrected one is no longer refused.
    receive(queue, source)
    seen += [data[:1] for _, data in drained(queue)]
    assert seen == [b"1", b"2", b"3", b"4", b"5", b"0"]
