"""`report usage`: what was charged, as a table, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal

TODAY = datetime.now(timezone.utc).date()


def test_usage_is_shown_by_name_and_period(mq: Terminal, queue: MessageQueue, tmp_path: Path) -> None:
    assert "nothing was charged in this time" in mq("report", "usage").out
    assert mq.json("report", "usage") == []
    mq("enqueue", "acme/a", "x", "y")
    mq("enqueue", "acme/b", "z")
    mq("enqueue", "=birch", "z")
    queue.service_queues(lambda delivery: None)

    (one, *_) = found = mq.json("report", "usage")
    assert [row["name"] for row in found] == ["=birch", "acme/a", "acme/b"]
    assert {name: one[name] for name in ("period", "messages", "charged", "attempts", "set_aside", "cost")} == {
        "period": str(TODAY), "messages": 1, "charged": {"time": 1, "size": 1}, "attempts": 1, "set_aside": 0,
        "cost": None,
    }  # fmt: skip
    words = ("report", "usage", "--by", "path", "--per", "month", "--since", f"{TODAY:%Y-%m}")
    table = mq(*words).out.splitlines()
    assert table[0].split()[:3] == ["period", "name", "messages"] and len(table) == 3
    assert table[2].split()[:3] == [f"{TODAY:%Y-%m}", "acme", "3"]
    later = TODAY + timedelta(days=1)
    assert mq.json(*words, "--until", str(TODAY)) == mq.json("report", "usage", "--since", str(later)) == []
    assert [row["name"] for row in mq.json(*words, "--of", "acme")] == ["acme/a", "acme/b"]
    assert "expected 2026-11-28" in mq("report", "usage", "--since", "11/28", code=2).err


def test_usage_is_priced_and_written_as_csv(mq: Terminal, queue: MessageQueue, tmp_path: Path) -> None:
    mq("enqueue", "=acme", "x" * 500)
    queue.service_queues(lambda delivery: None)
    tariff = tmp_path / "prices.json"
    tariff.write_text(json.dumps({
        "currency": "EUR", "per": "1/100", "prices": [{"from": "2026-01-01", "time": "0.125", "size": "0.1"}],
    }))  # fmt: skip

    words = ("report", "usage", "--tariff", str(tariff))
    assert "0.62 EUR" in mq(*words).out
    (row,) = mq.json(*words)
    assert (row["cost"], row["currency"]) == ("0.62", "EUR")
    heading, line = csv.reader(io.StringIO(mq(*words, "--csv").out))
    values = dict(zip(heading, line))
    assert values.pop("measured").startswith("0") and values == {
        "period": str(TODAY), "name": "'=acme", "messages": "1", "bytes": "500", "attempts": "1", "set_aside": "0",
        "planned_time": "1", "planned_size": "500", "charged_time": "1", "charged_size": "500", "cost": "0.62",
        "currency": "EUR",
    }  # fmt: skip
    tariff.write_text("{}")
    assert "invalid tariff" in mq(*words, code=2).err
