"""From a wheel to the first block: install it into an empty home, start Airflow, run a block, and time each command.

    pip wheel --no-deps --wheel-dir dist . && python -m lab.first_block dist/*.whl

It prints a transcript. Nothing is kept in a cache of packages, so the time of the installation depends on the network.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DAG = """\
from datetime import timedelta

from airflow.sdk import DAG
from airflow_mq.block import block
from airflow_mq.processors import Processor

with DAG("first_steps", schedule=timedelta(minutes=5), catchup=False):
    block(processors=[Processor("log", "airflow_mq.examples.simple:log", where="in place")])
"""
LAST_LINE_OF_DEV = "Ctrl-C ends it"
MOST_SECONDS = 900


class Terminal:
    """A terminal in an empty home; it prints each command with its output, and the seconds that it took."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "VIRTUAL_ENV"))}
        store = {"AIRFLOW_MQ_STORE": f"sqlite:///{home}/queue.db"}
        programs = {"PATH": f"{home}/.venv/bin{os.pathsep}{kept['PATH']}"}
        self.environment = {**kept, "HOME": str(home), "PIP_NO_CACHE_DIR": "1", **store, **programs}
        self.begin = time.monotonic()

    def type(self, command: str, *, shown: bool = True) -> str:
        """Run a command to its end; return what it prints."""
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.home, env=self.environment, text=True, capture_output=True, check=False
        )
        if done.returncode:
            sys.exit(f"$ {command}\n{done.stdout}{done.stderr}")
        if shown:
            self.note(f"$ {command}", begun)
            print(done.stdout, end="", flush=True)
        return done.stdout

    def note(self, line: str, begun: float) -> None:
        """Print a line, how long its command took, and when it ended."""
        now = time.monotonic()
        print(f"{line}    # {now - begun:.1f} s, {now - self.begin:.0f} s in all", flush=True)


def run(wheel: Path, extras: str, constraints: Path | None) -> float:
    """Go from the wheel to the first block; return the seconds."""
    with tempfile.TemporaryDirectory(prefix="first-block-") as folder:
        terminal = Terminal(Path(folder))
        bound = f" -c {constraints}" if constraints else ""
        terminal.type(f"{sys.executable} -m venv .venv")
        terminal.type(f"pip install --quiet{bound} '{wheel}[{extras}]'")
        terminal.type("airflow-mq store upgrade && airflow-mq enqueue loud four five")
        (terminal.home / "dags").mkdir()
        (terminal.home / "dags" / "first_steps.py").write_text(DAG)
        begun, out = time.monotonic(), terminal.home / "dev.out"
        with out.open("w") as file:
            airflow = subprocess.Popen(
                ["airflow-mq", "dev"], cwd=terminal.home, env=terminal.environment, stdout=file, stderr=file
            )
        try:
            _until(lambda: LAST_LINE_OF_DEV in out.read_text() or airflow.poll() is not None)
            terminal.note("$ airflow-mq dev &", begun)
            terminal.type(". airflow-dev/env.sh && airflow dags unpause first_steps")
            begun = time.monotonic()
            events = "airflow-mq message events"
            _until(lambda: terminal.type(events, shown=False).count("Processed") == 2)
            terminal.note("until the block has processed both messages", begun)
            terminal.type(events)
            return time.monotonic() - terminal.begin
        finally:
            airflow.send_signal(signal.SIGINT)
            airflow.wait(60)


def _until(met) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + MOST_SECONDS
    while not met():
        if time.monotonic() > end:
            sys.exit(f"not done within {MOST_SECONDS} s")
        time.sleep(0.5)


def main() -> int:
    """Run it once and print the transcript."""
    parser = argparse.ArgumentParser(prog="python -m lab.first_block", description=__doc__)
    parser.add_argument("wheel", type=Path, help="a wheel of airflow_mq")
    parser.add_argument("--extras", default="airflow", help="extras to install (%(default)s)")
    parser.add_argument("--constraints", type=Path, metavar="FILE", help="versions to install, such as constraints.txt")
    arguments = parser.parse_args()
    constraints = arguments.constraints and arguments.constraints.resolve()
    print(f"{run(arguments.wheel.resolve(), arguments.extras, constraints):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
