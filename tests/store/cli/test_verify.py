"""A tenant verifies its bill, without a store."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.cli import main
from airflow_mq.engine.store import parse, upgrade
from tests.proofs.model.clock import stopped_clock
from tests.unit.test_bills import month

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "bill-tenants.md"


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bill, headers = month()
    file = tmp_path / "bill.json"
    file.write_text(json.dumps(bill))
    root = headers[-1].hash.hex()
    assert main(["verify", str(file), "--root", root]) == 0
    assert capsys.readouterr().out == "bill of acme for 2026-11: 400 messages on 2 days, 0.048195 EUR; proven\n"
    assert main(["verify", str(file)]) == 1
    assert "consistent, not proven" in capsys.readouterr().out
    file.write_text(json.dumps(bill).replace("36000", "36001", 1))
    assert main(["verify", str(file), "--root", root]) == 3
    assert "not what was published" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "none"), "--root", root]) == 2
    file.write_text(json.dumps(bill))
    assert main(["verify", str(file), "--root", root[:8]]) == 2
    assert f"invalid header '{root[:8]}': expected 64 hexadecimal digits" in capsys.readouterr().err
    file.write_text("{")
    assert main(["verify", str(file), "--root", root]) == 2
    assert "the bill cannot be read" in capsys.readouterr().err


def test_a_bill_of_a_month_that_is_not_closed_is_noted(store_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    upgrade(parse(store_uri))
    command = ["report", "bill", "--of", "acme", "--month", "2026-11", "--store", store_uri]
    with stopped_clock() as clock, MessageQueue(store_uri) as queue:
        clock.now = 1_793_923_200_000_000  # 6 November 2026
        queue.enqueue_message("acme", b"1")
        queue.service_queues(lambda delivery: None)
        for days, noted in ((24, True), (1, False)):
            clock.now += days * 86_400_000_000
            queue.admin.housekeep()
            capsys.readouterr()
            assert main(command) == 0
            printed = capsys.readouterr()
            assert json.loads(printed.out)["total"]["messages"] == 1
            assert ("the bill ends with 2026-11-29: later days" in printed.err) == noted
            assert "no day of it" not in printed.err
        assert main([*command[:3], "acne", *command[4:]]) == 0
        assert "no day of it has a charge of acne" in capsys.readouterr().err


def test_the_steps_of_the_guide(store_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator sends a bill, and its tenant verifies it, by the commands of the guide."""
    upgrade(parse(store_uri))
    text = PAGE.read_text().partition("## Send a bill that")[2].partition("\n## ")[0]
    lines = [shlex.split(line)[1:] for line in re.findall(r"^ *\$ (airflow-mq .*)$", text, re.M)]
    tariff, publish, send, check = lines
    assert [line[:2] for line in lines] == [
        ["ring", "change"],
        ["report", "headers"],
        ["report", "bill"],
        ["verify", "bill.json"],
    ]
    store = ["--store", store_uri]
    with stopped_clock() as clock, MessageQueue(store_uri) as queue:
        clock.now = 1_793_923_200_000_000  # 6 November 2026
        assert main([*tariff, *store]) == 0
        queue.enqueue_messages("acme", [b"1", b"2"])
        queue.enqueue_message("bolt", b"3")
        queue.service_queues(lambda delivery: None)
        clock.now += 86_400_000_000
        assert main(["ring", "housekeep", *store]) == 0
        capsys.readouterr()
        assert main([*publish, *store]) == 0
        header = capsys.readouterr().out.split()[-1]
        assert main([*send[: send.index(">")], *store]) == 0
    bill = tmp_path / "bill.json"
    bill.write_text(capsys.readouterr().out)
    verify = [str(bill) if word == "bill.json" else header if word == check[-1] else word for word in check]
    assert main(verify) == 0
    assert re.fullmatch(
        r"bill of acme for 2026-11: 2 messages on 1 day, [0-9.]+ EUR; proven\n", capsys.readouterr().out
    )
    assert main(verify[:2]) == 1 and "not proven" in capsys.readouterr().out
    bill.write_text(bill.read_text().replace('"messages": 2', '"messages": 1'))
    assert main(verify) == 3
