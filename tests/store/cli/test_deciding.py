"""`queue pause`, `resume`, `paused`, `set`, and the decisions of `admin`."""

from __future__ import annotations

import shlex

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal

HERE = "tests.store.cli.answers"
NOTHING = {"origin": "acme", "count": 0, "size": 0, "pages": 0, "ready_pages": 0, "below": None, "budgets": []}


def test_pausing_and_resuming(mq: Terminal) -> None:
    mq("enqueue", "acme", "x")
    mq("queue", "pause", "acme", "--why", "down\x1b[31m", "--until", "2h")

    (row,) = mq.json("queue", "paused")
    assert (row["origin"], row["reason"]) == ("acme", "down\x1b[31m")
    assert row["since"] < row["until"]
    assert "down\\x1b[31m" in mq("queue", "paused").out
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 0

    assert mq.json("queue", "resume", "acme") == {"origin": "acme", "resumed": True}
    assert mq.json("queue", "resume", "acme", code=1) == {"origin": "acme", "resumed": False}
    assert "was not paused" in mq("queue", "resume", "acme", code=1).out
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 1


def test_resuming_ends_a_backoff(mq: Terminal, queue: MessageQueue) -> None:
    mq("ring", "change", "--backoff", "10m", "--service-weight", "1m/1MB")
    for origin, setting in (("acme", "--ordered"), ("globex", "--no-ordered")):
        mq("queue", "set", origin, setting)
        mq("enqueue", origin, "x")
    queue.blocks.release(queue.blocks.plan())
    (acme,) = mq.json("queue", "list")
    assert acme["why"].startswith("The last attempt failed") and acme["why"].endswith(", or when resumed")
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 0

    for origin, reason in (("acme", "backoff"), ("globex", "not due")):
        explained = mq.json("explain", origin)
        (remedy,) = [one for one in explained["remedies"] if "airflow-mq queue resume" in one]
        command = shlex.split(remedy.rpartition("airflow-mq ")[2])
        assert (explained["reason"], command) == (reason, ["queue", "resume", origin])
        assert mq(*command).out == f"resumed {origin}\n"
        assert "nor did it wait for a backoff" in mq(*command, code=1).out
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 2


def test_a_pause_ends_at_its_time(mq: Terminal) -> None:
    assert "is past" in mq("queue", "pause", "acme", "--until", "2000-01-01T00:00:00Z", code=2).err
    mq("queue", "pause", "acme", "--until", "0s")

    assert mq.json("queue", "paused") == []


def test_sweeping_and_reaping(mq: Terminal) -> None:
    mq("enqueue", "acme", "x", "y")

    assert mq.json("admin", "set-aside-queue", "acme") == {"origin": "acme", "set_aside": 2}
    assert "has no waiting messages" in mq("admin", "set-aside-queue", "acme").out
    assert [one["reason"] for one in mq.json("set-aside", "list")] == ["swept", "swept"]
    assert mq("admin", "remove-page", "acme", "0", code=3).err.startswith("error: ")
    mq("ring", "change", "--set", "max_stale=0")
    mq("enqueue", "acme", "z")
    mq("admin", "set-aside-queue", "acme")
    assert "removed page 0" in mq("admin", "remove-page", "acme", "0", "--why", "old").out
    assert mq("admin", "remove-page", "acme", "0", code=3)
    assert mq("admin", "remove-page", "acme", "zero", code=2)
    assert mq.json("check") == []


def test_the_head_is_forced(mq: Terminal) -> None:
    for origin in ("acme", "beta"):
        mq("enqueue", origin, "x")

    assert mq.json("admin", "service-next", "beta") == {"origin": "beta", "is_next": True}
    assert [row["origin"] for row in mq.json("queue", "list")] == ["beta", "acme"]
    assert mq.json("admin", "service-next", "gamma", code=1)["is_next"] is False
    assert "beta is next" in mq("admin", "service-next", "beta").out


def test_how_an_origin_is_served(mq: Terminal) -> None:
    mq("queue", "set", "acme", "--share", "4", "--most", "10/20", "--no-ordered")
    assert mq.json("queue", "show", "acme") == {
        **NOTHING,
        "share": 4,
        "least": None,
        "most": {"time": 10, "size": 20},
        "ordered": False,
        **dict.fromkeys(("rate", "rate_bytes", "burst", "burst_bytes", "quota")),
    }
    assert "10 ms · 20 B" in (told := mq("queue", "show", "acme").out) and "in parallel" in told
    mq("queue", "set", "acme", "--unset", "all")
    assert mq.json("queue", "show", "acme") == {
        **NOTHING,
        "share": 1,
        "least": None,
        "most": None,
        "ordered": True,
        **dict.fromkeys(("rate", "rate_bytes", "burst", "burst_bytes", "quota")),
    }
    assert "expected --share" in mq("queue", "set", "acme", code=2).err
    assert "both set and unset" in mq("queue", "set", "acme", "--unset", "all", "--share", "2", code=2).err
    assert mq("queue", "set", "acme", "--share", "0", code=2)
    assert mq("queue", "set", "acme", "--share", "99999999", code=2)


def test_a_block_at_work_is_in_the_way(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "x")
    queue.blocks.plan()

    assert "block" in mq("admin", "set-aside-queue", "acme", code=3).err


def test_swept_messages_that_a_requeue_leaves_out_are_counted(mq: Terminal) -> None:
    mq("enqueue", "acme", "x", "y")
    mq("admin", "set-aside-queue", "acme")

    left_out = "2 swept messages left out: only a selection of reason 'swept' requeues those."
    told = mq("set-aside", "requeue", "--all", "--why", "again", code=1)
    assert "0 requeued; 0 still set aside" in told.out + told.err and left_out in told.out + told.err
    assert mq.json("set-aside", "requeue", "--all", code=1)["excluded"] == [left_out]
    assert mq.json("set-aside", "requeue", "--reason", "swept")["excluded"] == []
