"""The benchmark of Spark's start leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.spark.connecting import ROOT

PROGRAM = """
import subprocess, time
from lab.benchmarks.spark_startup import nothing_left
from tests.spark.connecting import bound

with nothing_left():
    child = subprocess.Popen(bound(["sleep", "61"]), start_new_session=True)
    while open(f"/proc/{child.pid}/comm").read() != "sleep\\n":
        time.sleep(0.01)
    print(child.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_what_it_started_ends_with_it(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        child = psutil.Process(int(program.stdout.readline()))
        program.send_signal(number)

    assert program.returncode == (-number if number == signal.SIGKILL else 128 + number)
    # If no process waits for it, it stays as a zombie.
    until = time.monotonic() + 60
    with contextlib.suppress(psutil.NoSuchProcess):
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, "the child lives on"
            time.sleep(0.05)
