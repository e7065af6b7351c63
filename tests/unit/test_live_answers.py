"""Answers of a live Airflow's API that have pages, and of runs that do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_mq.testing import live
from airflow_mq.testing.live import LiveAirflow
from airflow_mq.testing.loopback import Refused, TooLate


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveAirflow:
    """An Airflow that was not started; its API has 130 runs, each with 130 tasks of which the last is skipped."""
    airflow = LiveAirflow(tmp_path / "home", tmp_path / "dags")
    most = int(airflow.environment().get("AIRFLOW__API__MAXIMUM_PAGE_LIMIT", 100))

    def send(url: str, method: str, path: str, body: object, token: str | None, timeout: float) -> Any:
        address = urlsplit(path)
        if address.path == "/auth/token":
            return {"access_token": "token"}
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        page = slice(min(int(asked.get("limit", 50)), most))
        if address.path.endswith("/taskInstances") and "lost" not in address.path:
            tasks = [{"task_id": "each", "map_index": n, "state": "success"} for n in range(129)]
            return {"task_instances": [*tasks, {"task_id": "last", "map_index": -1, "state": "skipped"}][page]}
        if address.path.endswith("/dagRuns"):
            runs = sorted(range(130), reverse=asked["order_by"].startswith("-"))
            return {"dag_runs": [{"dag_run_id": f"run-{number}"} for number in runs][page]}
        raise Refused(404, "no run 'lost'", f"{method} {path}")

    monkeypatch.setattr(live, "send", send)
    return airflow


def test_all_tasks_of_a_run_are_returned(airflow: LiveAirflow) -> None:
    assert len(airflow.tasks("orders", "run-1")) == 130


def test_a_skipped_task_has_ended(airflow: LiveAirflow) -> None:
    assert airflow.wait_task("orders", "run-1", "last", timeout=0)["state"] == "skipped"


def test_the_latest_run_is_the_last(airflow: LiveAirflow) -> None:
    assert [airflow.runs("orders")[at]["dag_run_id"] for at in (-2, -1)] == ["run-128", "run-129"]


def test_waiting_for_a_run_that_does_not_exist_reports_the_refusal(airflow: LiveAirflow) -> None:
    with pytest.raises(TooLate, match="run lost of orders does not end: unknown: .*404 no run 'lost'"):
        airflow.wait("orders", "lost", timeout=0)
