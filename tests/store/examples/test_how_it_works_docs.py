"""The examples of docs/how-it-works.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.cli import main
from airflow_mq.engine.store import parse, upgrade

PAGE = Path(__file__).parents[3] / "docs" / "how-it-works.md"


def parts(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    # The parts are one program; the DAG is another.
    program = "".join(part for part in parts("python") if "airflow.sdk" not in part)
    names: dict[str, Any] = {"STORE": store}
    exec(compile(program, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    told = capsys.readouterr().out
    for ring, got in (("rotation", "50%"), ("deficit", "75%")):
        assert f"{ring}: the fair share of acme is 75%, and it got {got}" in told
    assert "globex received 50.0%, but its fair share is 25.0%" in told and "\nfair\n" in told

    monkeypatch.setenv("AIRFLOW_MQ_STORE", store)
    (command,) = re.findall(r"`airflow-mq (report fairness --.*?)`", PAGE.read_text())
    assert main(command.split()) == 0
