"""`admin measure-costs`: the costs of steps, as a setting of the ring."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.testing import weights as steps
from airflow_mq.testing.weights import Measured
from tests.proofs.crash.states import everything
from tests.store.cli.conftest import Terminal


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("QUEUES", 6), ("PAGES", 4), ("ITEMS", 20)):
        monkeypatch.setattr(steps, name, number)


@pytest.mark.slow
def test_costs_are_printed_and_nothing_changes(mq: Terminal, queue: MessageQueue, tmp_path: Path) -> None:
    before = everything(queue)
    measured = mq("admin", "measure-costs", "--repeats", "3")
    assert measured.err == ""
    lines = measured.out.splitlines()
    assert lines[0].split()[0] == "step" and len(lines) == 14
    assert lines[1].startswith("bump_service_head") and "a block that finds nothing" in lines[1]
    assert lines[-1] == "nothing was changed; --apply sets them in the ring"
    assert everything(queue) == before
    told = mq.json("admin", "measure-costs", "--repeats", "3", "--unit", "us")
    assert (told["unit"], told["repeats"], told["applied"]) == ("us", 3, False)
    step = told["steps"][0]
    assert step["step"] == "bump_service_head" and step["cost"]["time"] >= 1000 * step["median"]
    # What is printed is a file of settings.
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(told))
    mq("ring", "change", "--file", str(file))
    with MessageQueue(mq.uri) as again:
        assert again.config.costs.to_json() == told["config"]["costs"]


def test_it_is_applied_after_the_check(mq: Terminal, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "airflow_mq.testing.weights.measure", lambda *args: [Measured("bump_service_head", 41.5, 40.0, 43.0, "by hand")]
    )
    assert mq("admin", "measure-costs", "--apply").out.splitlines()[-1] == "set in the ring"
    with MessageQueue(mq.uri) as again:
        assert again.config.costs.bump_service_head == Weight(42, 0)
        again.admin.change_ring(service_weight=Weight(50, 1 << 20))
    told = mq("admin", "measure-costs", "--unit", "us", "--apply", code=2).err
    assert "at least 41.5 s" in told
    with MessageQueue(mq.uri) as again:
        assert again.config.costs.bump_service_head == Weight(42, 0)


def test_what_makes_no_sense(mq: Terminal) -> None:
    assert "3 to 1,000" in mq("admin", "measure-costs", "--repeats", "2", code=2).err


@pytest.mark.slow
def test_it_is_gone_when_it_is_terminated(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    program, environment = [sys.executable, "-m", "airflow_mq"], {**os.environ, "AIRFLOW_MQ_STORE": uri}
    subprocess.run([*program, "store", "upgrade"], check=True, env=environment, capture_output=True)
    child = subprocess.Popen([*program, "admin", "measure-costs", "--repeats", "1000"], env=environment)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*.measure-*")) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(tmp_path.glob("*.measure-*"))
    child.terminate()
    assert child.wait(60) == 128 + signal.SIGTERM
    assert sorted(path.name for path in tmp_path.iterdir() if "measure" in path.name) == []
