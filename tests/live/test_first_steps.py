"""docs/first-steps.md, followed to the letter in an empty home: each command, each file, and a block in a live Airflow."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_mq import MessageQueue
from tests.store.examples.test_docs import Example, commands, examples
from tests.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs" / "first-steps.md"
#: The environment of the tests has it all.
INSTALLS = re.compile(r"^(python -m venv|pip install) ")
DEV = "airflow-mq dev"
START_SECONDS, BLOCK_SECONDS = 800, 600


class Reader:
    """A reader who follows the page, at one terminal after the other."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self.variables = home, home, dict[str, str]()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTEST_"))}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        self.environment = {**kept, "HOME": str(home), "PATH": programs}

    def type(self, command: str, printed: str = "") -> None:
        """Run a command; the folder and the variables stay for the next one."""
        after = "\necho; echo ---; pwd; env -0"
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{command}{after}"], cwd=self.folder, env=self.environment, text=True,
            capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        told, _, state = done.stdout.partition("\n---\n")
        folder, _, variables = state.partition("\n")
        self.folder = Path(folder)
        self.environment = dict(one.split("=", 1) for one in variables.split("\0") if "=" in one)
        assert_like(told, printed)

    @contextmanager
    def keeping(self, command: str, printed: str) -> Iterator[None]:
        """Run a command that stays, until what it prints is that of the page; end it by Ctrl-C."""
        out = self.folder / "dev.out"
        with out.open("w") as file:
            running = subprocess.Popen(
                command.split(), cwd=self.folder, env=self.environment, stdout=file, stderr=file,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        try:
            last = printed.strip().splitlines()[-1]
            eventually(lambda: last in out.read_text() or running.poll() is not None, START_SECONDS)
            assert_like(out.read_text(), printed)
            yield
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0, out.read_text()
        finally:
            running.kill()
            running.wait()


def assert_like(told: str, printed: str) -> None:
    """Check that the output is what the page shows, where `…` stands for anything."""
    if printed.strip():
        words = [" ".join(line.split()) for line in printed.strip().splitlines()]
        pattern = "\n".join(re.escape(line).replace("…", ".*") for line in words)
        found = "\n".join(" ".join(line.split()) for line in told.strip().splitlines())
        assert re.fullmatch(pattern, found), f"{told}\nis not\n{printed}"


def test_first_steps_work_from_nothing(tmp_path: Path) -> None:
    reader, text = Reader(tmp_path), PAGE.read_text("utf-8")
    lines, served = text.splitlines(), False
    steps = examples(PAGE)
    for at, step in enumerate(steps):
        if step.kind == "python":
            before = "\n".join(lines[: step.line])
            name = re.findall(r"[Ss]ave this as `([^`]+)`", before)[-1]
            (reader.folder / name).write_text(step.text)
        for command, printed in commands(step.text) if step.kind == "console" else ():
            if command == DEV:
                with reader.keeping(command, printed):
                    _follow_beside(reader, steps[at + 1 :])
                served = True
            elif not INSTALLS.match(command) and not served:
                reader.type(command, printed)
    assert served, "the page has a live Airflow"


def _follow_beside(reader: Reader, steps: list[Example]) -> None:
    """Run a step of the page at another terminal, and return its output."""
    beside = Reader(reader.home)
    for step in steps:
        for command, printed in commands(step.text) if step.kind == "console" else ():
            beside.type(command, printed)
    with MessageQueue(f"sqlite:///{beside.folder}/queue.db") as queue:
        eventually(lambda: not queue.inspect.ring_order(1) and not queue.blocks.list("planned"), BLOCK_SECONDS)
        processed = [event.block for event in queue.inspect.events(name="Processed") if event.origin == "loud"]
        assert queue.check() == []
    assert len(processed) == 5, "three at the terminal, and two in Airflow"
