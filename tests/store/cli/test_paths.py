"""Groups of origins at the terminal."""

from __future__ import annotations

import pytest

from tests.store.cli.conftest import Terminal

HERE = "tests.store.cli.answers"


@pytest.mark.slow
def test_a_group_is_paused_looked_at_and_resumed(mq: Terminal) -> None:
    for origin in ("acme/orders", "acme/mail", "birch"):
        mq("enqueue", origin, "x", "y")
    assert "ring change --set paths=true" in mq("queue", "pause", "acme", "--below", code=2).err
    mq("ring", "change", "--set", "paths=true")

    assert mq.json("queue", "show", "acme")["below"]["count"] == 4
    assert "with all below" in mq("queue", "show", "acme").out
    assert [row["origin"] for row in mq.json("queue", "list", "--prefix", "acme/")] == ["acme/mail", "acme/orders"]
    assert "acme/" in mq("explain", "acme", "--below").out
    assert "paused acme and all below it" in mq("queue", "pause", "acme", "--below", "--why", "audit").out
    assert mq.json("queue", "paused")[0]["below"] is True
    assert "yes" in mq("queue", "paused").out
    assert "with all below it, is paused" in mq("explain", "acme", "--below").out
    assert (
        "its group acme is paused; to resume that: airflow-mq queue resume acme"
        in mq("queue", "resume", "acme/mail", code=1).out
    )
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 2
    assert mq.json("queue", "resume", "acme") == {"origin": "acme", "resumed": True}
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 4

    assert [one["messages"] for one in mq.json("report", "ledger", "--origin", "acme")] == [4, 0]
    assert "messages of acme" in mq("report", "ledger", "--origin", "acme").out
    assert mq.json("check") == []
