"""`queue list`, `queue show`, `message list`, `check`: they change nothing."""

from __future__ import annotations

import pytest

from airflow_mq import MessageQueue
from airflow_mq.cli.queue import SORTS
from tests.store.cli.conftest import Terminal


def test_an_empty_ring_shows_how_to_begin(mq: Terminal) -> None:
    for words in (["queue", "list"], ["queue", "list"], ["message", "list", "acme"]):
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

    one = {"pages": 1, "ready_pages": 1, "count": 2, "size": 3}
    shown = mq.json("queue", "show", "acme/a")
    assert {name: shown[name] for name in one} == one and shown["below"] is None
    assert "2 messages, 3 bytes, 1 page (1 ready)" in mq("queue", "show", "acme/a").out
    assert [row["origin"] for row in mq.json("queue", "list")] == ["acme/a", "beta"]
    (row,) = mq.json("queue", "list", "--prefix", "acme/")
    assert (row["origin"], row["messages"], row["ready"], row["size"], row["turn"]) == ("acme/a", 2, 2, 3, None)
    assert [row["origin"] for row in mq.json("queue", "list", "--after", "acme/a")] == ["beta"]
    assert "continue with --after=acme/a" in mq("queue", "list", "--sort", "name", "--limit", "1").out
    assert "there are more: see --limit" in mq("queue", "list", "--limit", "1").out
    table = mq("queue", "list").out.splitlines()
    assert table[0].split() == ["turn", "queue", "waiting", "in", "flight", "set", "aside", "bytes", "oldest", "why"]
    assert table[1].split()[:3] == ["1", "acme/a", "2"] and table[2].split()[:3] == ["2", "beta", "1"]


def test_the_sorts_of_a_list(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "beta", "x")
    mq("enqueue", "acme", "x", "y", "z")
    mq("enqueue", "aside", "x")
    mq("admin", "set-aside-queue", "aside")

    names = {sort: [row["origin"] for row in mq.json("queue", "list", "--sort", sort)] for sort in SORTS}
    assert names == {
        "turn": ["beta", "acme"],
        "name": ["acme", "aside", "beta"],
        "backlog": ["acme", "beta"],
        "oldest": ["beta", "acme"],
    }
    (row,) = mq.json("queue", "list", "--prefix", "as")
    assert (row["ready"], row["set_aside"], row["why"]) == (0, 1, "All messages are set aside")
    assert "omit --sort turn" in mq("queue", "list", "--prefix", "a", "--sort", "turn", code=2).err


def test_a_page_by_name_keeps_both_queues_of_an_origin(mq: Terminal) -> None:
    for origin in ("acme", "beta"):
        mq("enqueue", origin, "x")
        mq("enqueue", origin, "--priority", "high", "y")

    listed = mq.json("queue", "list", "--sort", "name", "--limit", "1")
    assert [(row["origin"], row["priority"]) for row in listed] == [("acme", "high"), ("acme", "regular")]
    after = mq.json("queue", "list", "--after", "acme", "--limit", "1")
    assert [(row["origin"], row["priority"]) for row in after] == [("beta", "high"), ("beta", "regular")]


def test_the_order_of_service(mq: Terminal, queue: MessageQueue) -> None:
    for origin in ("acme", "beta", "gamma"):
        mq("enqueue", origin, "x")
    mq("queue", "pause", "beta")

    assert [(row["origin"], row["skipped"]) for row in mq.json("queue", "list")] == [
        ("acme", ""), ("beta", "paused"), ("gamma", ""),
    ]  # fmt: skip
    assert len(mq.json("queue", "list", "--limit", "2")) == 2
    queue.blocks.plan()
    assert {(row["origin"], row["in_flight"], row["skipped"]) for row in mq.json("queue", "list")} == {
        ("acme", 1, "in flight"), ("gamma", 1, "in flight"), ("beta", 0, "paused"),
    }  # fmt: skip


def test_a_message_cannot_speak_to_the_terminal(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", "\x1b]0;title\x07 \u202eevil\u2028 [bold]x[/bold] é\n".encode() + b"\xff\x9b")

    text = mq("message", "list", "acme").out

    assert "\\x1b]0;title\\x07 \\u202eevil\\u2028 [bold]x[/bold] é\\n\\xff\\x9b" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert all(character < "\x7f" for character in mq("message", "list", "acme", "--json").out)


def test_long_messages_are_whole_in_a_pipe(mq: Terminal) -> None:
    mq("enqueue", "acme", "y" * 60_000)

    assert [line.endswith("y" * 60_000) for line in mq("message", "list", "acme").out.splitlines()] == [False, True]
    assert mq.json("message", "list", "acme")[0]["payload"] == "y" * 60_000


def test_an_origin_with_delayed_messages_only_is_not_called_empty(mq: Terminal) -> None:
    mq("enqueue", "late", "an order", "--delay", "1d")

    for command in (("message", "list"), ("queue", "show")):
        out = mq(*command, "late").out
        assert "; 1 message of late is not due before " in out and "enqueue" not in out


def test_messages_of_several_queues(mq: Terminal) -> None:
    for origin in ("beta", "acme/b", "acme/a"):
        mq("enqueue", origin, "x", "y")

    assert [one["address"] for one in mq.json("message", "list", "--limit", "3")] == [
        "beta:0:0",
        "beta:0:1",
        "acme/b:0:0",
    ]
    assert [one["origin"] for one in mq.json("message", "list", "--prefix", "acme/")] == ["acme/a"] * 2 + ["acme/b"] * 2
    assert "no messages of zebra here" in mq("message", "list", "--prefix", "zebra").out
    assert "not both" in mq("message", "list", "acme/a", "--prefix", "acme", code=2).err
    assert "expected ORIGIN" in mq("message", "list", "--page", "0", code=2).err


def test_peeking_at_a_page(mq: Terminal) -> None:
    mq("enqueue", "acme", "x", "y", "z")

    assert len(mq.json("message", "list", "acme", "--limit", "2")) == 2
    assert [one["index"] for one in mq.json("message", "list", "acme", "--page", "0")] == [0, 1, 2]
    assert mq.json("message", "list", "acme", "--page", "7") == []


def test_the_check_finds_what_is_broken(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "x", "y")
    queue.blocks.plan()  # cuts a page
    assert "all is well" in mq("check").out
    assert mq.json("check") == []

    table = "mq_book" if queue.store.address.driver == "sqlite" else f'"{queue.store.address.schema}".book'
    queue.store.lent().connection.execute(f"UPDATE {table} SET messages = 7, size = 99")

    found = mq.json("check", code=1)
    assert found and all(set(one) == {"where", "what"} for one in found)
    assert "acme" in mq("check", code=1).out


@pytest.mark.parametrize(
    "words", [["queue", "list", "a" * 256], ["message", "list", ""], ["message", "list", "acme", "--limit", "0"]]
)
def test_an_invalid_command_is_an_error(mq: Terminal, words: list[str]) -> None:
    assert mq(*words, code=2).err.startswith("error: ")
