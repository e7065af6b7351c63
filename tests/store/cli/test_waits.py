"""Every reason for which a queue waits, as all commands print it."""

from __future__ import annotations

import pytest

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal
from tests.store.waits import LIMIT, WAITS


@pytest.mark.parametrize("name", WAITS)
def test_commands_name_the_reason(mq: Terminal, queue: MessageQueue, name: str) -> None:
    waits = WAITS[name]
    queue.admin.change_ring(service_weight=LIMIT)
    waits.build(queue)

    (row,) = (row for row in mq.json("queue", "list", "--sort", "name") if row["origin"] == waits.origin)
    assert row["why"].startswith(waits.why)
    assert waits.why in " ".join(mq("queue", "list", "--sort", "name").out.split())
    status = mq.json("status", code=int(waits.needs_person))
    assert status["ok"] is not waits.needs_person
    for listed in (status, mq.json("top", "--once")):
        whys = {one["origin"]: one["why"] for one in listed["queues"]}
        # A queue without a turn has only set-aside messages.
        assert waits.state == "set aside" or whys[waits.origin] == row["why"]
    explained = mq.json("explain", waits.origin)
    assert explained["reason"] == waits.reason
    if "most" in waits.why:
        assert f"its most was used up in block {row['why'].split()[-1]}" in explained["sentence"]
        assert "a larger most, or none: airflow-mq queue set acme --unset most" in explained["remedies"]
    if waits.state in ("unserved", "stuck"):
        (finding,) = (one for one in status["findings"] if one["level"] == "wrong")
        assert (finding["what"], finding["do"]) == (explained["sentence"], "; or ".join(explained["remedies"]))
        assert finding in mq.json("doctor", code=1)["findings"]
