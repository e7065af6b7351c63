"""`overweight`: what a person does with messages that were set aside."""

from __future__ import annotations

import pytest

from airflow_mq import MessageQueue, Weight, Yield
from airflow_mq.engine.queue.set_aside import SetAsides
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.rules.message import message_id
from tests.store.cli.conftest import Terminal

HERE = "tests.store.cli.answers"


@pytest.fixture
def aside(mq: Terminal) -> list[str]:
    """Three messages that were set aside."""
    mq("enqueue", "acme", "one", "two", "three")
    mq("service", "--processor", f"{HERE}:too_heavy")
    return [one["address"] for one in mq.json("set-aside", "list")]


def test_they_are_listed(mq: Terminal, aside: list[str]) -> None:
    assert aside == ["acme:0:0", "acme:0:1", "acme:0:2"]
    first = mq.json("set-aside", "list", "--limit", "1")[0]
    assert (first["reason"], first["size"], first["weight"]["time"]) == ("overweight", 3, 1 << 60)
    assert mq.json("set-aside", "list", "--origin", "beta") == []
    assert [one["address"] for one in mq.json("set-aside", "list", "--after", "acme:0:1")] == ["acme:0:2"]
    text = mq("set-aside", "list", "--limit", "1").out
    assert "acme:0:0" in text and "--after=acme:0:0" in text


def test_one_is_executed(mq: Terminal, aside: list[str]) -> None:
    assert mq.json("set-aside", "execute", aside[0], "--processor", f"{HERE}:done") == {
        "address": "acme:0:0",
        "weight": {"time": 1, "size": 3},
    }
    assert "executed acme:0:1" in mq("set-aside", "execute", aside[1], "--processor", f"{HERE}:done").out
    assert mq("set-aside", "execute", aside[0], "--processor", f"{HERE}:done", code=3).err.startswith("error: ")
    assert mq.json("queue", "show", "acme")["count"] == 1


def test_the_queue_may_refuse(mq: Terminal, aside: list[str]) -> None:
    execute = ("set-aside", "execute")
    assert mq(*execute, aside[0], "--processor", f"{HERE}:done", "--service-weight", "0/0", code=3)
    assert mq(*execute, aside[0], "--processor", f"{HERE}:not_now", code=3)
    assert mq(*execute, "acme:9:0", "--processor", f"{HERE}:done", code=3)
    assert mq(*execute, "acme:0:9", "--processor", f"{HERE}:done", code=3)
    assert mq(*execute, "acme", "--processor", f"{HERE}:done", code=2)
    mq("queue", "pause", "acme")
    assert "paused" in mq(*execute, aside[0], "--processor", f"{HERE}:done", code=3).err


def test_they_are_found_by_what_they_are(mq: Terminal, aside: list[str]) -> None:
    assert len(mq.json("set-aside", "list", "--reason", "overweight", "--older-than", "0s")) == 3
    assert mq.json("set-aside", "list", "--reason", "swept") == []
    assert mq.json("set-aside", "list", "--block", "7") == mq.json("set-aside", "list", "--arrived", "7") == []
    assert mq.json("set-aside", "list", "--older-than", "1d") == []
    assert mq("set-aside", "list", "--older-than", "tomorrow", code=2)
    assert mq("set-aside", "list", "--reason", "boredom", code=2)
    assert mq.json("set-aside", "list", "--error", "KeyError") == []
    assert (
        "expected the beginning of an error's text"
        in mq("set-aside", "list", "--error", "KeyError", "--reason", "size", code=2).err
    )


@pytest.mark.slow
def test_they_are_requeued(mq: Terminal, aside: list[str]) -> None:
    stayed = mq.json("set-aside", "requeue", aside[0], code=1)
    assert stayed["moved"] == [] and "more than the 10 min" in stayed["stayed"][0]["why"]
    assert "stays" in mq("set-aside", "requeue", "--reason", "overweight", code=1).out
    assert mq("set-aside", "requeue", code=2) and mq("set-aside", "requeue", aside[0], "--all", code=2)
    for empty in (["--origin", ""], ["--error", ""], ["--reason", ""], [""], ["--all", "--origin", "acme"]):
        assert mq("set-aside", "requeue", *empty, code=2) and mq("set-aside", "discard", *empty, "--why", "x", code=2)

    assert mq.json("set-aside", "requeue", aside[0], "--weigh", "--why", "weighed again")["moved"] == [
        {"address": aside[0], "moved": "acme:1:0"}
    ]
    assert "2 requeued; 0 still set aside" in mq("set-aside", "requeue", "--all", "--weigh").out
    assert mq.json("queue", "show", "acme")["count"] == 3
    assert mq.json("set-aside", "list") == []
    assert mq.json("check") == []


def test_messages_that_were_tried_too_often(mq: Terminal) -> None:
    """The list shows the last error, and a requeue that leaves them aside names the option that requeues them."""
    mq("ring", "change", "--max-attempts", "1")
    mq("enqueue", "acme", "one")
    with MessageQueue(mq.uri) as queue:
        queue.service_queues(lambda delivery: Yield("KeyError: 'amount'"))

    lines = mq("set-aside", "list").out.splitlines()
    assert lines[0].endswith("last error") and "KeyError: 'amount'" in lines[1]
    assert mq.json("set-aside", "list")[0]["error"] == "KeyError: 'amount'"
    stays = mq("set-aside", "requeue", "acme:0:0", code=1)
    assert "0 requeued; 1 still set aside" in stays.out + stays.err and "--forget-attempts" in stays.out + stays.err
    moved = mq("set-aside", "requeue", "acme:0:0", "--forget-attempts")
    assert "requeued at" in moved.out and "--forget-attempts" not in moved.out + moved.err


def test_they_go_by_filter_and_by_policy(mq: Terminal, aside: list[str]) -> None:
    assert mq("set-aside", "discard", "--why", "all of it", code=2)
    assert mq("set-aside", "discard", aside[0], "--origin", "acme", "--why", "both", code=2)
    assert mq.json("set-aside", "discard", "--origin", "beta", "--why", "none") == {"discarded": 0}
    mq("ring", "change", "--set", "set_aside_expires=0.001")
    assert mq.json("ring", "housekeep")["expired_messages"] == 3
    assert {event["name"] for event in mq("message", "events", "--name", "Expired", "--json").lines} == {"Expired"}


def test_the_history_of_a_message_is_printed(mq: Terminal, aside: list[str]) -> None:
    mq("set-aside", "discard", aside[1], "--why", "a mistake")
    told = mq.json("message", "history", aside[1])
    assert [step["what"] for step in told["steps"]] == ["enqueued", "set aside", "discarded"]
    assert (told["state"], told["end"]["why"]) == ("gone", "a mistake")
    assert mq.json("message", "history", told["id"], "--origin", "acme")["steps"] == told["steps"]
    text = mq("message", "history", aside[1]).out
    assert "a mistake" in text and "it was discarded" in text
    assert "nothing is known" in mq("message", "history", "beta:0:0", code=1).out
    mq("enqueue", "acme", "later", "--delay", "1h")
    name = message_id(b"later").hex()
    assert mq.json("message", "history", name)["due"] and "it joins its queue at" in mq("message", "history", name).out
    assert mq("message", "history", "not hexadecimal", code=2) and mq("message", "history", "abcd", code=2)


def test_they_are_discarded_for_a_reason(mq: Terminal, aside: list[str]) -> None:
    assert "--why" in mq("set-aside", "discard", aside[0], code=2).err
    assert mq("set-aside", "discard", aside[0], "--why", "", code=2)

    assert mq.json("set-aside", "discard", aside[0], "--why", "a mistake", aside[1]) == {"discarded": 2}
    assert "discarded 1 message\n" in mq("set-aside", "discard", aside[2], "--why", "another").out

    assert mq.json("set-aside", "list") == []
    events = mq("message", "events", "--name", "Discarded", "--json").lines
    assert len(events) == 3 and "a mistake" in events[0]["detail"]
    assert mq.json("check") == []


def test_housekeeping_of_a_ring_in_use_leaves_only_what_needs_the_ring(
    mq: Terminal, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service in place may hold the ring for hours."""

    def refuse(self: SetAsides) -> int:
        raise Busy

    monkeypatch.setattr(SetAsides, "expire", refuse)
    queue.enqueue_message("acme", b"x")
    queue.blocks.plan(lease=0, limit=Weight(10, 10))
    assert "services this ring" in mq("ring", "housekeep", code=3).err
    assert queue.blocks.list("planned") == []


def test_housekeeping_deletes_what_the_ring_keeps_no_longer(mq: Terminal) -> None:
    mq("enqueue", "acme", "an order")
    mq("service", "--processor", "builtins:len", code=1)
    assert mq.json("ring", "housekeep") == {"expired_messages": 0, "dead_blocks": 0, "removed_pages": 0}
    assert mq("message", "events", "--json").lines
    mq("ring", "change", "--set", "keep_events=0")

    assert "0 dead blocks released" in mq("ring", "housekeep", "--stale-pages").out
    assert mq("message", "events", "--json").lines == []
