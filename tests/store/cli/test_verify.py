"""A tenant verifies its bill, without a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mq.cli import main
from tests.unit.test_bills import month


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
