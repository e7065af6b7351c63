"""A program in tmux, and the screen as tmux has it: another terminal than the one that tests make themselves."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

from .emulator import PATIENCE

TMUX = shutil.which("tmux")


class InTmux:
    """A program in a server of its own; a context manager."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], width: int = 100, height: int = 30
    ) -> None:
        self.name = f"airflow-mq-{uuid4().hex}"
        self.environment = {**environment, "LANG": "C.UTF-8"}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "TMUX", "TMUX_PANE"):
            self.environment.pop(name, None)
        self._ask("-f", os.devnull, "new-session", "-d", "-x", str(width), "-y", str(height), shlex.join(words))

    def _ask(self, *words: str) -> str:
        said = subprocess.run(
            [str(TMUX), "-u", "-L", self.name, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout

    def __enter__(self) -> InTmux:
        return self

    def __exit__(self, *error: object) -> None:
        self._ask("kill-server")

    @property
    def text(self) -> str:
        """The text of the screen; empty once the program has ended."""
        return "\n".join(line.rstrip() for line in self._ask("capture-pane", "-p").splitlines()).rstrip()

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them: `j`, `Enter`, `Down`."""
        self._ask("send-keys", *keys)

    def until(self, *wanted: str) -> str:
        """Wait until the screen shows all of this; return it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text = self.text
            if all(one in text for one in wanted):
                return text
            time.sleep(0.1)
        raise AssertionError(f"{wanted} never came; the screen shows\n{self.text}")

    def end(self) -> bool:
        """Wait for the program to end, and with it tmux; return whether it did."""
        deadline = time.monotonic() + PATIENCE
        while self._ask("list-sessions") and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self._ask("list-sessions")
