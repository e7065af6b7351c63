"""The Airflow of these tests: it runs, reports what is wrong, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from airflow_mq.testing.live import LiveAirflow
from airflow_mq.testing.loopback import AirflowFailed

DAGS = Path(__file__).parent / "dags"

PARENT = """
import sys, time
from airflow_mq.testing.live import LiveAirflow
airflow = LiveAirflow(sys.argv[1], sys.argv[2]).start(["dag-processor", "triggerer"], wait=False)
print(*(process.pid for process in airflow.processes()), flush=True)
time.sleep(600)
"""


def test_a_component_that_does_not_come_up_reports_why(tmp_path: Path) -> None:
    airflow = LiveAirflow(tmp_path / "home", DAGS, settings={"core.executor": "NoSuchExecutor"})
    with pytest.raises(AirflowFailed, match=r"(?s)airflow scheduler ended with 1.*NoSuchExecutor"), airflow:
        pass
    assert airflow.processes() == []


def test_a_dead_parent_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "home"), str(DAGS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        started = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(started) == 2
        time.sleep(5)  # long enough for them to have children of their own
        children = [child for one in started for child in one.children(recursive=True)]
        parent.send_signal(signal.SIGKILL)
    gone, left = psutil.wait_procs([*started, *children], timeout=60)
    assert left == []
