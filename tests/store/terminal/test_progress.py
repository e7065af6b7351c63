"""Progress of long commands: on a terminal, beside the answer, and never in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from airflow_mq import MessageQueue
from airflow_mq.cli import output
from airflow_mq.engine.store import parse, upgrade
from tests.store.terminal.emulator import Emulated

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    return {**os.environ, "AIRFLOW_MQ_STORE": uri}


def test_who_waits_on_a_terminal_sees_how_far_it_is(environment: dict[str, str], tmp_path: Path) -> None:
    """A reader that waits for a signal, so that the bar has time to appear."""
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 99 + b"\n" + b"y" * 99 + b"\n" * 3001)
    code = (
        "import sys; from airflow_mq.cli import main, enqueue\n"
        "enqueue._STEP = 1\n"
        "real = enqueue._payloads\n"
        "def slow(args, files):\n"
        "    for payload in real(args, files):\n"
        "        yield payload\n"
        "        open('/dev/tty').readline()\n"
        "enqueue._payloads = slow\n"
        f"sys.exit(main(['enqueue', 'acme', '--lines', '--file', {str(file)!r}]))"
    )
    with Emulated([sys.executable, "-c", code], environment) as terminal:
        settings = termios.tcgetattr(terminal.slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(terminal.slave, termios.TCSANOW, settings)
        terminal.until("enqueuing", "0:00:0")
        terminal.press("\n")
        terminal.until("enqueuing: 2 messages read", "━")
        terminal.press("\n")
        assert terminal.end() == 0
        assert "enqueued 2 messages of 198 bytes" in terminal.text and "━" not in terminal.text


@pytest.mark.parametrize("when", ["add_task", "start"])
def test_a_report_while_the_bar_appears_is_shown(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The working thread may report progress at any moment while another thread makes the bar."""
    begun, reported, real = threading.Event(), threading.Event(), getattr(Progress, when)
    bars: list[Progress] = []

    def late(self: Progress, *args: Any, **values: Any) -> Any:
        found = real(self, *args, **values)
        bars.append(self)
        assert begun.wait(60)
        report("the latest")
        reported.set()
        return found

    monkeypatch.setattr(Progress, when, late)
    monkeypatch.setattr(output, "AFTER", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.Output().progress("working") as report:
        begun.set()
        assert reported.wait(60)
    assert bars[0].tasks[0].description == "working: the latest"


def test_what_is_quick_flashes_nothing(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; from airflow_mq.cli import main, output\noutput.AFTER = 600.0\nsys.exit(main(['check']))"
    with Emulated([sys.executable, "-c", code], environment) as terminal:
        assert terminal.end() == 0
        assert terminal.raw == b"all is well in ring default\r\n"


def test_nothing_of_it_in_a_pipe(environment: dict[str, str]) -> None:
    code = "import sys; from airflow_mq.cli import main, output\noutput.AFTER = 0.0\nsys.exit(main(['check']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all is well in ring default\n", "")


def test_the_check_shows_its_progress(environment: dict[str, str]) -> None:
    with MessageQueue(environment["AIRFLOW_MQ_STORE"]) as queue:
        for number in range(120):
            queue.enqueue_message(f"o{number}", b"x")
        told: list[tuple[int, int]] = []
        assert queue.check(lambda done, of: told.append((done, of))) == []
    assert told == [(0, 120), (50, 120), (100, 120)]
