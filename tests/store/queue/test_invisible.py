"""Origins with invisible characters: rejected from senders, serviced if stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mq import Done, MessageQueue
from airflow_mq.adapters import Received, receive
from airflow_mq.adapters.landing import LandingFolder
from airflow_mq.cli.output import shown
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.characters import quoted, visible
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidOrigin
from airflow_mq.engine.rules.message import Message
from airflow_mq.engine.store import parse, upgrade


@pytest.fixture
def sqlite_queue(sqlite_uri: str) -> Iterator[MessageQueue]:
    """Yield a queue for tests that do not depend on the store."""
    upgrade(parse(sqlite_uri))
    with MessageQueue(sqlite_uri) as queue:
        yield queue


INVISIBLE = [
    "\u00ad", "\u034f", "\u061c", "\u115f", "\u200b", "\u200d", "\u200e", "\u202e", "\u2060", "\u2066", "\u3164",
    "\ufe0f", "\ufeff", "\uffa0", "\U000e0041",
]  # fmt: skip


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_senders_cannot_use_invisible_characters(sqlite_queue: MessageQueue, character: str) -> None:
    queue, origin = sqlite_queue, f"ac{character}me"
    for send in (
        lambda: queue.enqueue_message(origin, b"x"),
        lambda: queue.enqueue_message(origin, b"x", key="k"),
        lambda: queue.enqueue_messages(origin, [b"x"]),
        lambda: queue.enqueue_messages([("acme", b"x"), (origin, b"x")]),
        lambda: queue.enqueue_messages([("acme", b"x"), (origin, Message(b"x", "k"))]),
        lambda: queue.payloads.enqueue(origin, b"x"),
    ):
        with pytest.raises(InvalidOrigin, match=f"U\\+{ord(character):04X}") as refused:
            send()
        assert str(refused.value).isprintable()
    assert list(queue.footprints()) == []
    assert character not in shown(origin) and f"{ord(character):x}" in shown(origin)


def test_origins_in_all_languages_are_accepted(sqlite_queue: MessageQueue) -> None:
    for origin in ("zürich", "東京", "القاهرة", "नई दिल्ली", "Ωμέγα", "e\u0301", "😀", "a b/c:d"):
        assert sqlite_queue.enqueue_message(origin, b"x").count == 1


def test_stored_invisible_origin_is_serviced(queue: MessageQueue) -> None:
    origin = "ac\u200bme"
    queue.admin.change_ring(invisible_origins=True)
    queue.enqueue_messages(origin, [b"one", b"two"])
    queue.admin.change_ring(invisible_origins=False)
    with pytest.raises(InvalidOrigin, match="invisible_origins"):
        queue.enqueue_message(origin, b"three")
    assert [message.payload for message in queue.inspect.peek(origin)] == [b"one", b"two"]
    queue.admin.pause(origin, "why")
    queue.admin.resume(origin)
    seen: list[bytes] = []
    queue.service_queues(lambda delivery: seen.append(delivery.payload))
    assert seen == [b"one", b"two"] and queue.check() == []
    with pytest.raises(ConfigRefused, match="true or false"):
        queue.admin.change_ring(invisible_origins="yes")


def test_processors_cannot_send_to_invisible_origins(queue: MessageQueue) -> None:
    origin = "ac\u200bme"
    done = Done(enqueue=[(origin, b"x")])
    queue.enqueue_message("a", b"1")
    for send in (lambda delivery: done, lambda delivery: delivery.enqueue(origin, b"x")):
        assert queue.service_queues(send).processed == 0
    block = queue.blocks.plan()
    with pytest.raises(InvalidOrigin, match="U\\+200B"):
        queue.blocks.report(block, [Report("a", 0, 0, 0, done)])
    queue.blocks.release(block)
    assert [name for name, _ in queue.footprints()] == ["a"]
    queue.admin.change_ring(invisible_origins=True)
    assert queue.service_queues(lambda delivery: done, origins="a").processed == 1
    assert [name for name, _ in queue.footprints()] == [origin]


def test_landing_folder_rejects_an_invisible_origin(sqlite_queue: MessageQueue, tmp_path: Path) -> None:
    for name in ("ac\u202eme", "acme"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1").write_bytes(b"x")
    assert receive(sqlite_queue, LandingFolder(tmp_path, "{origin}/*", settle=0)) == Received(1, 1, refused=1)
    assert "U+202E" in (tmp_path / ".refused" / "ac\u202eme" / "1.why").read_text()


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_log_lines_escape_invisible_characters(
    sqlite_queue: MessageQueue, character: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue, origin = sqlite_queue, f"ac{character}me"
    queue.admin.change_ring(invisible_origins=True)
    queue.enqueue_message(origin, b"x")
    with caplog.at_level(logging.DEBUG):
        queue.service_queues(lambda delivery: 1 / 0)  # type: ignore[arg-type,return-value]
    assert "the processor failed on ac\\" in caplog.text and character not in caplog.text
    assert visible(origin) == shown(origin) and quoted(origin) == f"'{visible(origin)}'"
