"""`blocks`, `events`, `ledger`, `weights`: what is planned, what became of it, what it cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from airflow_mq import Block, Done, LinearWeigher, MessageQueue, Weight
from airflow_mq.engine.rules.events import EventRun, Fate
from tests.store.cli.conftest import Terminal


def planned(mq: Terminal, queue: MessageQueue, **options: float) -> Block:
    mq("enqueue", "acme", "one", "three")
    return queue.blocks.plan(**options)  # type: ignore[arg-type]


def settle(queue: MessageQueue, block: Block, used: Weight) -> None:
    for batch in block.batches():
        queue.blocks.report(block, batch.answers([Done(used=used)] * len(batch)))
    queue.blocks.settle(block)


def test_blocks_are_listed_and_shown(mq: Terminal, queue: MessageQueue) -> None:
    block = planned(mq, queue)

    (row,) = mq.json("block", "list", "--state", "planned")
    assert (row["id"], row["token"], row["messages"], row["overdue"]) == (block.id, block.token, 2, False)
    shown = mq.json("block", "show", block.token)
    assert shown["claims"] == [
        {"origin": "acme", "priority": "regular", "messages": 2, "planned": {"time": 2, "size": 8}}
    ]
    assert "acme" in mq("block", "show", block.token).out
    assert block.token in mq("block", "list").out
    assert mq.json("block", "list", "--state", "settled") == []


def test_a_block_is_released(mq: Terminal, queue: MessageQueue) -> None:
    block = planned(mq, queue)

    assert mq.json("block", "release", block.token)["returned"] >= 1
    assert mq.json("queue", "show", "acme")["count"] == 2
    settled = queue.blocks.plan()
    settle(queue, settled, Weight(1, 1))
    assert "was settled;" in mq("block", "release", settled.token, code=3).err
    assert mq("block", "release", "00ff", code=3)
    assert mq("block", "show", "no token", code=3)


def test_events_list_the_outcomes_of_messages(mq: Terminal, queue: MessageQueue) -> None:
    block = planned(mq, queue)
    settle(queue, block, Weight(1, 1))

    first, second = mq("message", "events", "--json").lines
    assert (first["name"], first["origin"], first["index"], first["success"]) == ("Processed", "acme", 0, True)
    assert first["block"] == block.id and len(first["id"]) == 64
    assert mq("message", "events", "--json", "--id", second["id"]).lines == [second]
    assert mq("message", "events", "--json", "--limit", "1").lines == [first]
    assert mq("message", "events", "--json", "--after", str(second["seq"])).out == ""
    assert mq("message", "events", "--json", "--origin", "beta").out == ""
    assert mq("message", "events", "--json", "--name", "PageRemoved").out == ""
    assert mq("message", "events", "--json", "--block", "1").out == "" or block.id == 1
    assert "Processed  acme:0:0  weight=1 ms · 1 B" in mq("message", "events").out
    assert mq("message", "events", "--name", "Nothing", code=2)
    assert mq("message", "events", "--id", "xyz", code=2)


def test_the_latest_events_come_first(mq: Terminal) -> None:
    mq("enqueue", "acme", *map(str, range(300)))
    mq("service", "--processor", "tests.store.cli.answers:done")
    everything = mq("message", "events", "--json").lines

    assert len(everything) > 200
    assert mq("message", "events", "--latest", "--json").lines == everything[::-1]
    named = [event for event in everything[::-1] if event["name"] == "Processed"]
    latest = mq("message", "events", "--latest", "--json", "--limit", "150", "--name", "Processed", "--origin", "acme")
    assert latest.lines == named[:150]
    assert mq("message", "events", "--latest", "--json", "--origin", "beta").out == ""
    for more in (("--follow",), ("--after", "1"), ("--block", "0"), ("--id", "00" * 32)):
        assert "--latest goes with" in mq("message", "events", "--latest", *more, code=2).err


@pytest.mark.slow
def test_events_are_followed(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")
    with subprocess.Popen(
        [sys.executable, "-m", "airflow_mq", "message", "events", "--follow", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    ) as follower:  # fmt: skip
        assert follower.stdout is not None and follower.stderr is not None
        try:
            time.sleep(0.5)
            mq("service", "--processor", "tests.store.cli.answers:done")
            assert json.loads(follower.stdout.readline())["origin"] == "acme"
            follower.send_signal(signal.SIGINT)
            assert follower.wait(60) == 130
            assert "Traceback" not in follower.stderr.read()
        finally:
            follower.kill()


def test_who_follows_may_stop_after_so_many(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")
    mq("service", "--processor", "tests.store.cli.answers:done")

    assert len(mq("message", "events", "--follow", "--limit", "1", "--json").lines) == 1


@pytest.mark.slow
def test_a_reader_who_has_seen_enough(mq: Terminal) -> None:
    mq("enqueue", "acme", *map(str, range(3000)))
    mq("service", "--processor", "tests.store.cli.answers:whole_batch", "--batch")
    pipe = '"$0" -m airflow_mq message events --json | head -n 1; echo ${PIPESTATUS[0]}'
    done = subprocess.run(["/bin/bash", "-c", pipe, sys.executable], capture_output=True, text=True, env=os.environ)

    assert done.stdout.splitlines()[1] == "0"
    assert done.stderr == ""


def test_the_ledger(mq: Terminal, queue: MessageQueue) -> None:
    block = planned(mq, queue)

    (page,) = mq.json("report", "ledger")
    assert page["block"] == block.id
    assert page["entries"][0]["origin"] == "acme" and page["entries"][0]["messages"] == 2
    assert mq.json("report", "ledger", "--block", str(block.id)) == [page]
    assert mq.json("report", "ledger", "--block", "99999") == []
    assert "acme" in mq("report", "ledger").out


def test_the_ledger_names_groups_that_were_skipped(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.change_ring(order="deficit", paths=True)
    queue.enqueue_messages([("acme/mail", b"x"), ("birch", b"x")])
    queue.admin.pause("acme", below=True)
    block = queue.blocks.plan()
    (page,) = mq.json("report", "ledger", "--limit", "1")
    assert page["halted"] == {"paused": ["acme"]} and page["skipped"] == {}
    assert f"block {block.id} skipped 'acme' and all below it: paused" in mq("report", "ledger", "--limit", "1").out


def test_the_ledger_counts_queues_that_were_skipped_without_a_visit(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.change_ring(order="deficit")
    names = [f"paused-{number}" for number in range(40)]
    queue.enqueue_messages((name, b"x") for name in ["acme", *names])
    queue.blocks.release(queue.blocks.plan())
    for name in names:
        queue.admin.pause(name)
    block = queue.blocks.plan()
    (page,) = mq.json("report", "ledger", "--block", str(block.id))
    assert page["skipped"] == {"paused": 8} and len(page["entries"]) == 33
    assert f"block {block.id} skipped 8 more queues: paused" in mq("report", "ledger", "--limit", "1").out


def test_weights_are_fitted_and_stored(mq: Terminal, queue: MessageQueue) -> None:
    assert "nothing was measured yet" in mq("admin", "fit-weigher", code=1).out
    told = mq.json("admin", "fit-weigher", code=1)
    assert (told["fits"], told["together"], told["applied"]) == ([], None, False)
    settle(queue, planned(mq, queue), Weight(100, 8))

    said = mq("admin", "fit-weigher", code=1)
    assert "9900% more time" in said.err
    fitted = mq.json("admin", "fit-weigher", code=1)
    assert (fitted["together"]["count"], fitted["applied"]) == (2, False)
    assert fitted["together"]["weigher"]["base"] == [100, 8]
    assert mq.json("admin", "fit-weigher", "--origin", "beta", code=1)["fits"] == []

    assert "stored the fitted weigher in the ring" in mq("admin", "fit-weigher", "--apply").out
    assert mq.json("ring", "show")["config"]["weigher"] == fitted["together"]["weigher"]
    assert mq("admin", "fit-weigher").err == ""


def test_a_weigher_that_predicts_no_time_is_not_fit(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.change_ring(weigher=LinearWeigher(Weight(0, 8)))
    settle(queue, planned(mq, queue), Weight(100, 8))
    printed = mq("admin", "fit-weigher", code=1)
    assert "messages used time, and the ring's weigher predicts none; `airflow-mq admin fit" in printed.err
    assert mq.json("admin", "fit-weigher", code=1)["together"]["drift"] is None


def test_the_event_of_a_closed_day_has_no_address(mq: Terminal, queue: MessageQueue) -> None:
    with queue.store.writing() as unit:
        day = EventRun(Fate.DAY_CLOSED, "", 0, 0, [b"h" * 32], [], "2026-11-27, 4 leaves")
        unit.events.save(queue.session.ring_id, [day], unit.now())
    line = mq("message", "events", "--name", "DayClosed").out
    assert "DayClosed  2026-11-27, 4 leaves" in line and ":0:0" not in line
