"""Budgets at a terminal: how they are set and shown, and the answers to twelve usual mistakes."""

from __future__ import annotations

import pytest

from airflow_mq import MessageQueue, Weight
from tests.store.cli.conftest import Terminal


def test_budget_is_set_shown_and_unset(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x")
    printed = mq("queue", "set", "acme", "--rate", "2h/day", "--rate-bytes", "50GiB/day", "--burst", "30m").out
    assert printed.splitlines()[0] == "acme: rate unset → 2h/day, rate_bytes unset → 50GiB/day, burst unset → 30min"
    shown = mq("queue", "show", "acme").out
    assert "2h/day" in shown and "30min of 30min, " in shown
    found = mq.json("queue", "show", "acme")
    assert (found["rate"], found["rate_bytes"], found["burst"]) == ("2h/day", "50GiB/day", 1_800_000)
    assert [(one["path"], one["left"], one["burst"]) for one in found["budgets"]] == [("acme", 1_800_000, 1_800_000)]
    mq("queue", "set", "acme", "--unset", "rate", "--unset", "burst", "--unset", "rate-bytes")
    assert mq.json("queue", "show", "acme")["budgets"] == []


REFUSED = {
    "no period": (["--rate", "2h"], "expected an amount per second, minute, hour or day, such as 2h/day"),
    "no unit": (["--rate", "2/day"], "expected a time such as"),
    "bytes for time": (["--rate", "50GiB/day"], "expected a time; a size is set by rate-bytes"),
    "time for bytes": (["--rate-bytes", "2h/day"], "expected a size; a time is set by rate"),
    "a month": (["--rate", "60h/month"], "expected an amount per second, minute, hour or day"),
    "nothing": (["--rate", "0s/day"], "to stop a queue, pause it"),
    "burst alone": (["--burst", "30m"], "burst needs a rate: specify both, or unset burst"),
    "burst with a period": (["--rate", "2h/day", "--burst", "30m/hour"], "a burst is an amount, such as 30m"),
    "a name of its own": (["--unset", "rates"], "did you mean rate?"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_mistakes_are_refused(mq: Terminal, mistake: str) -> None:
    arguments, printed = REFUSED[mistake]
    assert printed in mq("queue", "set", "acme", *arguments, code=2).err
    assert mq.json("queue", "show", "acme")["budgets"] == []


def test_queue_that_waits_for_its_budget_cannot_be_next(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x", b"y"], weight=Weight(60_000, 1))
    mq("queue", "set", "acme", "--rate", "1m/day", "--burst", "1m")
    assert queue.service_queues(lambda delivery: None).processed == 1
    assert "nothing ready, or no budget" in mq("admin", "service-next", "acme", code=1).out


def test_burst_below_the_heaviest_message_is_noted(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x", weight=Weight(60_000, 1))
    printed = mq("queue", "set", "acme", "--rate", "2h/day", "--burst", "30s").out
    assert "its first message weighs 1 min · 1 B, more than the burst: it starts when the budget is full" in printed


def test_budget_of_a_path_in_a_ring_without_paths_is_noted(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme/orders", b"x")
    printed = mq("queue", "set", "acme", "--rate", "2h/day").out
    assert "this ring has no paths: the budget is of acme alone, not of acme/orders" in printed


def test_budget_below_the_least_is_noted(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x")
    mq("queue", "set", "acme", "--least", "10m/1GiB")
    assert "its least of 10 min · 1 GiB per block is more than the burst: the budget comes first" in (
        mq("queue", "set", "acme", "--rate", "1h/day").out
    )


def test_budget_of_the_longest_name(mq: Terminal, queue: MessageQueue) -> None:
    assert "rate unset → 2h/day" in mq("queue", "set", "x" * 255, "--rate", "2h/day").out


def test_name_without_messages_is_noted(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x")
    assert "acmee has no messages; did you mean acme?" in mq("queue", "set", "acmee", "--rate", "1h/day").out
