"""The example from beginning to end: over REST on PostgreSQL, and as `make demo` runs it, on SQLite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from airflow_mq.cli.dev.orders import DemoRun
from tests.live.conftest import World
from tests.store.terminal.emulator import Emulated

REPOSITORY = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "airflow_mq", "demo"]


@pytest.mark.spark
@pytest.mark.postgres
def test_orders_of_many_tenants_on_postgres(worlds: dict[str, World]) -> None:
    world = worlds["postgres"]
    demo = DemoRun(world.place, world.store, world.airflow, print)
    demo.set_up(loud_files=60)
    summary = demo.serve(by_hand=True)
    assert summary.problems == []
    assert summary.ok
    assert len(summary.blocks) == 1
    assert summary.executed_by_hand
    # Each Spark job of the block shows its application at its task.
    (run,) = world.airflow.runs("orders")
    jobs = [
        world.airflow.xcom("orders", run["dag_run_id"], task["task_id"], "spark_job", map_index=task["map_index"])
        for task in world.airflow.tasks("orders", run["dag_run_id"])
        if task["task_id"].endswith("process")
    ]
    assert jobs and all(job["id"].startswith("local-") for job in jobs), jobs


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without Java, with an empty home."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).iterdir() if Path(folder).is_dir() else ():
            link = programs / path.name
            if not path.name.startswith(("java", "python")) and not link.is_symlink():
                link.symlink_to(path)
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "TERM")}
    (tmp_path / "home").mkdir()
    return {**kept, "PATH": str(programs), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}


def below(place: Path) -> list[str]:
    """Return the running processes whose command lines name this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(place) in " ".join(process.cmdline()) or str(place) in process.cwd():
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.spark
def test_the_demo_without_a_terminal_and_without_java(bare: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    done = subprocess.run(
        [*DEMO, "--summary", file, "--loud", "150"], env=bare, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=1000, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(file) in done.stdout
    summary = json.loads(file.read_text())
    assert summary["ok"] and summary["problems"] == []
    assert len(summary["blocks"]) == 2
    assert all(used <= most for block in summary["blocks"] for used, most in zip(block["weight"], block["limit"]))
    assert [one["tenant"] for one in summary["failed"]] == ["typo-trade"]
    assert summary["executed_by_hand"]
    first = {tenant: one["first_block"] for tenant, one in summary["tenants"].items()}
    assert set(first.values()) == {1}
    assert below(tmp_path) == []


def test_the_demo_is_interrupted_on_a_terminal(bare: dict[str, str], tmp_path: Path) -> None:
    with Emulated(DEMO, bare) as demo:
        give_up = time.monotonic() + 120
        while not below(tmp_path):
            assert time.monotonic() < give_up, demo.text
            demo.read(0.2)
        early = time.monotonic() + 5
        while time.monotonic() < early:
            demo.read(0.2)
        assert below(tmp_path) != []
        demo.process.send_signal(signal.SIGINT)
        assert demo.end() == 130
    assert below(tmp_path) == []
