"""Priorities and seeds at a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Weight
from tests.store.cli.conftest import Terminal


@pytest.mark.slow
def test_a_high_message_is_shown_as_one_everywhere(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "one", "two")
    assert mq.json("enqueue", "acme", "--priority", "high", "three")["count"] == 1
    assert mq.json("enqueue", "acme", "--priority", "high", "--key", "k", "three")["count"] == 1

    assert mq.json("queue", "show", "acme")["count"] == 4
    assert [(row["origin"], row["priority"], row["messages"]) for row in mq.json("queue", "list")] == [
        ("acme", "high", 2), ("acme", "regular", 2),
    ]  # fmt: skip
    assert mq("queue", "list").out.splitlines()[1].split()[:3] == ["1", "acme", "(high)"]
    assert [row["address"] for row in mq.json("message", "list", "acme")] == [
        "acme:0:0:high",
        "acme:0:1:high",
        "acme:0:0",
        "acme:0:1",
    ]
    assert "acme (high)" in mq("block", "dry-run").out and "acme (high) 2, acme 2" in mq("block", "forecast").out
    assert mq.json("explain", "acme")["address"] == "acme:0:0:high"
    assert mq.json("explain", "acme", "--priority", "regular")["address"] == "acme:0:0"
    assert mq.json("explain", "acme:0:1:high")["reason"] == "next"

    block = queue.blocks.plan()
    assert [row["priority"] for row in mq.json("block", "show", block.token)["claims"]] == ["high", "regular"]
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    assert "acme (high)" in mq("report", "ledger").out and "Processed  acme:0:0:high" in mq("message", "events").out
    assert [event["priority"] for event in mq("message", "events", "--json", "--origin", "acme").lines] == [
        "high"
    ] * 2 + ["regular"] * 2
    assert mq.json("ring", "show")["config"]["kept_for_regular"] == 0.5
    assert "fraction" in mq("ring", "change", "--set", "kept_for_regular=2", code=2).err


@pytest.mark.slow
def test_a_head_and_a_page_of_a_priority(mq: Terminal, queue: MessageQueue) -> None:
    for origin in ("a", "b"):
        mq("enqueue", origin, "--priority", "high", "x")
    assert "b is next" in mq("admin", "service-next", "b", "--priority", "high").out
    assert queue.inspect.ring_order(priority="high") == ["b", "a"]
    assert mq("admin", "service-next", "b", code=1).code == 1, "it has no regular messages"
    mq("ring", "change", "--set", "max_stale=0")
    for _ in range(3):
        mq("admin", "set-aside-queue", "a")
        mq("enqueue", "a", "--priority", "high", "x")
    assert "is not behind the window" in mq("admin", "remove-page", "a", "0", code=3).err
    assert "removed page 0" in mq("admin", "remove-page", "a", "0", "--priority", "high").out


def test_lines_of_json_may_name_their_priority(mq: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("\n".join(map(json.dumps, [{"payload": "a", "priority": "high"}, {"payload": "b"}])))
    assert mq.json("enqueue", "acme", "--ndjson", str(path))["count"] == 2
    assert [row["priority"] for row in mq.json("message", "list", "acme")] == ["high", "regular"]
    path.write_text('{"payload": "a", "priority": "urgent"}')
    assert "line 1: invalid priority" in mq("enqueue", "acme", "--ndjson", str(path), code=2).err


def test_what_is_set_aside_is_decided_by_its_address(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"heavy", weight=Weight(1 << 40, 0), priority="high")
    queue.blocks.settle(queue.blocks.plan())
    (row,) = mq.json("set-aside", "list", "--origin", "acme")
    assert (row["address"], row["priority"]) == ("acme:0:0:high", "high")
    assert mq("set-aside", "discard", row["address"], "--why", "too much").code == 0
    assert mq.json("set-aside", "list") == []


@pytest.mark.slow
def test_an_order_follows_from_the_seed_of_a_block(mq: Terminal, queue: MessageQueue) -> None:
    mq("ring", "change", "--order", "shuffle")
    for number in range(9):
        mq("enqueue", f"o{number}", "x")
    block = queue.blocks.plan()
    seed = mq.json("block", "show", block.token)["seed"]
    assert (
        f"seed: {seed}" in " ".join(mq("block", "show", block.token).out.split())
        or seed in mq("block", "show", block.token).out
    )

    told = [line.split()[1] for line in mq("queue", "list", "--seed", seed).out.splitlines()[1:]]

    assert (
        told
        == [entry.origin for entry in queue.inspect.ledger(block=block.id)[0].entries]
        == [row["origin"] for row in mq.json("queue", "list", "--seed", seed)]
        == queue.inspect.ring_order(seed=bytes.fromhex(seed))
    )
    assert [row["origin"] for row in mq.json("queue", "list", "--limit", "3")] == ["o0", "o1", "o2"]
    assert "give its --seed" in mq("queue", "list").out
    assert "hexadecimal" in mq("queue", "list", "--seed", "zz", code=2).err
    assert "1 to 64 bytes" in mq("queue", "list", "--seed", "00" * 65, code=2).err
    assert "omit --sort" in mq("queue", "list", "--seed", seed, "--sort", "name", code=2).err
