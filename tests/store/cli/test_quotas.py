"""Commands that set a quota and show how full queues are."""

from __future__ import annotations

from airflow_mq import MessageQueue
from airflow_mq.cli.doctor import _quotas
from tests.store.cli.conftest import Terminal


def test_commands_show_how_full_a_queue_is(mq: Terminal, queue: MessageQueue) -> None:
    assert "quota unset → 1024" in mq("queue", "set", "acme", "--quota", "1KiB").out
    queue.enqueue_message("acme", b"x" * 1000)
    queue.enqueue_message("other", b"x")
    listed = mq("queue", "list").out
    assert "full" in listed and "97.7%" in listed
    rows = mq.json("queue", "list")
    assert [(row["origin"], row["full"]) for row in rows] == [("acme", 1000 / 1024), ("other", None)]
    assert "1.0 kB, 97.7% full" in mq("queue", "show", "acme").out
    assert "acme: 97.7% of its quota of 1.0 kB is stored" in mq("explain", "acme").out
    assert "quota" not in mq("explain", "other").out
    queue.session.reread_config()
    (found,) = _quotas(queue)
    assert found.level == "note" and found.what.startswith("acme stores 1.0 kB of its quota of 1.0 kB; above it, sends")
    refused = mq("enqueue", "acme", "y" * 100, code=3).err
    assert "'acme' is full: it stores 1,000 bytes of 1,024, and 76 must drain" in refused
    assert "quota 1024 → unset" in mq("queue", "set", "acme", "--unset", "quota").out
    assert "full" not in mq("queue", "list").out


def test_a_quote_shows_how_full_the_queue_is(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", quota="1kB")
    queue.enqueue_message("acme", b"x" * 900)
    printed = mq("quote", "--as", "acme", "--messages", "3", "--weight", "1ms/1kB", "--every", "10m")
    assert "acme stores 900 B of its quota of 1.0 kB, which is checked" in printed.out + printed.err
    assert "quota" not in mq("quote", "--as", "bolt", "--messages", "3", "--weight", "1ms/1kB", "--every", "10m").out


def test_a_quota_that_delayed_messages_fill_does_not_look_empty(mq: Terminal) -> None:
    mq("queue", "set", "acme", "--quota", "1KiB")
    mq("enqueue", "acme", "x" * 1024, "--delay", "1h")
    shown = mq("queue", "show", "acme").out
    assert "0 messages, 0 bytes" in shown and "100.0% full, delayed messages included" in shown


def test_mistakes_are_refused(mq: Terminal) -> None:
    for size in ("many", "0B", "-1"):
        assert "expected" in mq("queue", "set", "acme", f"--quota={size}", code=2).err
