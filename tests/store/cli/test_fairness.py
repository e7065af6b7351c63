"""`fairness`: figures from the ledger, and an exit code for broken bounds."""

from __future__ import annotations

import pytest

from airflow_mq import LinearWeigher, MessageQueue, Weight
from tests.store.cli.conftest import Terminal


@pytest.fixture
def served(queue: MessageQueue) -> MessageQueue:
    """Two blocks of sixteen in the contract's order; each went to one of two."""
    queue.admin.change_ring(
        order="rotation", service_weight=Weight(16, 1 << 20), weigher=LinearWeigher(Weight(1, 0), Weight(0, 0))
    )
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 40)
    for _ in range(3):
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
    return queue


def test_an_empty_ledger(mq: Terminal) -> None:
    assert "the ledger is empty" in mq("report", "fairness").out
    assert mq("report", "fairness", "--most-wait", "0", "--most-error", "0", "--least-jain", "1").err == ""
    assert mq.json("report", "fairness") == {
        "blocks": 0, "jain": None, "longest_wait": 0, "most_late": 0, "most_error": 0.0, "origins": [], "broken": [],
        "partial": False,
    }  # fmt: skip


def test_figures(mq: Terminal, served: MessageQueue) -> None:
    lines = mq("report", "fairness").out.splitlines()
    assert lines[0].split()[:4] == ["origin", "share", "contended", "promised"]
    assert lines[1].split() == ["acme", "1", "3", "50.0%", "66.7%", "+33.3%", "1", "0", "0", "2.00"]
    assert lines[2].split() == ["globex", "1", "3", "50.0%", "33.3%", "-33.3%", "1", "1", "0", "1.00"]
    assert lines[3].startswith("over 3 blocks: Jain's index 0.900, the longest wait 1 block, the largest share error")
    told = mq.json("report", "fairness", "--blocks", "2")
    assert (told["blocks"], told["jain"]) == (2, 1.0)
    assert [(one["origin"], one["error"]) for one in told["origins"]] == [("acme", 0.0), ("globex", 0.0)]


def test_broken(mq: Terminal, served: MessageQueue) -> None:
    assert mq("report", "fairness", "--most-wait", "1", "--most-error", "40%", "--least-jain", "0.85").err == ""
    said = mq(
        "report", "fairness", "--most-wait", "0", "--most-error", "0.3", "--least-jain", "0.95", code=1
    ).err.splitlines()
    assert said == [
        "warning: acme waited 1 block, more than 0",
        "warning: globex waited 1 block, and still waits, more than 0",
        "warning: globex received 33.3%, but its fair share is 50.0%: 33.3% less, beyond the bound of 30.0%",
        "warning: acme received 66.7%, but its fair share is 50.0%: 33.3% more, beyond the bound of 30.0%",
        "warning: Jain's index is 0.900, below 0.95",
    ]
    assert len(mq.json("report", "fairness", "--most-wait", "0", code=1)["broken"]) == 2
    assert "0.05 or 5%" in mq("report", "fairness", "--most-error", "much", code=2).err
    assert "at least 1" in mq("report", "fairness", "--blocks", "0", code=2).err
