"""`footprint`, `order`, `peek`, `check`: looking, and changing nothing."""

from __future__ import annotations

import pytest

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal


def test_an_empty_ring_shows_how_to_begin(mq: Terminal) -> None:
    for words in (["queue", "footprint"], ["queue", "order"], ["message", "peek", "acme"]):
        assert "airflow-mq enqueue acme" in mq(*words).out
        assert mq(*words, "--quiet").out == ""
        assert mq.json(*words) == []
    assert "nothing is paused" in mq("queue", "paused").out
    assert "no message is set aside" in mq("set-aside", "list").out
    assert "no events" in mq("message", "events").out
    assert "no blocks" in mq("block", "list").out
    assert "the ledger is empty" in mq("report", "ledger").out


def test_footprints(mq: Terminal) -> None:
    mq("enqueue", "acme/a", "x", "yy")
    mq("enqueue", "beta", "zzz")

    one = {"origin": "acme/a", "pages": 1, "ready_pages": 1, "count": 2, "size": 3}
    assert mq.json("queue", "footprint", "acme/a") == one
    assert [row["origin"] for row in mq.json("queue", "footprint")] == ["acme/a", "beta"]
    assert mq.json("queue", "footprint", "--prefix", "acme/") == [one]
    assert [row["origin"] for row in mq.json("queue", "footprint", "--after", "acme/a")] == ["beta"]
    assert "go on with --after acme/a" in mq("queue", "footprint", "--limit", "1").out
    table = mq("queue", "footprint").out.splitlines()
    assert table[0].split() == ["origin", "messages", "bytes", "pages", "ready", "pages"]
    assert table[3].split() == ["2", "queues", "3", "6", "2", "2"]


def test_the_order_of_service(mq: Terminal, queue: MessageQueue) -> None:
    for origin in ("acme", "beta", "gamma"):
        mq("enqueue", origin, "x")
    mq("queue", "pause", "beta")

    assert [(row["origin"], row["skipped"]) for row in mq.json("queue", "order")] == [
        ("acme", ""), ("beta", "paused"), ("gamma", ""),
    ]  # fmt: skip
    assert len(mq.json("queue", "order", "--limit", "2")) == 2
    queue.blocks.plan()
    assert {(row["origin"], row["in_flight"], row["skipped"]) for row in mq.json("queue", "order")} == {
        ("acme", 1, "in flight"), ("gamma", 1, "in flight"), ("beta", 0, "paused"),
    }  # fmt: skip


def test_a_message_cannot_speak_to_the_terminal(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", "\x1b]0;title\x07 \u202eevil\u2028 [bold]x[/bold] é\n".encode() + b"\xff\x9b")

    text = mq("message", "peek", "acme", "--full").out

    assert "\\x1b]0;title\\x07 \\u202eevil\\u2028 [bold]x[/bold] é\\n\\xff\\x9b" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert all(character < "\x7f" for character in mq("message", "peek", "acme", "--json").out)


def test_long_messages_are_shortened_unless_asked_for(mq: Terminal) -> None:
    mq("enqueue", "acme", "y" * 500)

    assert "y" * 79 + "…" in mq("message", "peek", "acme").out and "y" * 80 not in mq("message", "peek", "acme").out
    assert "y" * 500 in mq("message", "peek", "acme", "--full").out
    assert mq.json("message", "peek", "acme")[0]["payload"] == "y" * 500


def test_peeking_at_a_page(mq: Terminal) -> None:
    mq("enqueue", "acme", "x", "y", "z")

    assert len(mq.json("message", "peek", "acme", "--limit", "2")) == 2
    assert [one["index"] for one in mq.json("message", "peek", "acme", "--page", "0")] == [0, 1, 2]
    assert mq.json("message", "peek", "acme", "--page", "7") == []


def test_the_check_finds_what_is_broken(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "x", "y")
    queue.blocks.plan()  # cuts a page
    assert "all is well" in mq("check").out
    assert mq.json("check") == []

    table = "mq_book" if queue.store.address.driver == "sqlite" else f'"{queue.store.address.schema}".book'
    queue.store.connection().execute(f"UPDATE {table} SET messages = 7, size = 99")

    found = mq.json("check", code=1)
    assert found and all(set(one) == {"where", "what"} for one in found)
    assert "acme" in mq("check", code=1).out


@pytest.mark.parametrize(
    "words", [["queue", "footprint", "a" * 256], ["message", "peek", ""], ["message", "peek", "acme", "--limit", "0"]]
)
def test_an_invalid_command_is_an_error(mq: Terminal, words: list[str]) -> None:
    assert mq(*words, code=2).err.startswith("error: ")
