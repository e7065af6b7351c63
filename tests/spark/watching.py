"""Search for secrets where others can see them: command lines, outputs, files."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil


class Watched:
    """A job that runs, and the command lines of all that it started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, env=dict(environment), stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.command_lines: set[str] = set()
        self._pids: set[int] = set()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self.process.poll() is None:
            for process in self.family():
                try:
                    self._pids.add(process.pid)
                    self.command_lines.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue
            time.sleep(0.1)

    def family(self) -> Iterator[psutil.Process]:
        """The job's processes."""
        try:
            root = psutil.Process(self.process.pid)
            yield root
            yield from root.children(recursive=True)
        except psutil.Error:
            return

    def workers(self) -> list[psutil.Process]:
        """The Python processes that try messages."""
        found = []
        for process in self.family():
            try:
                if "pyspark.daemon" in " ".join(process.cmdline()) and process.parent() is not None:
                    found.append(process)
            except psutil.Error:
                continue
        # The first is the daemon, which forks the others.
        return [one for one in found if "pyspark.daemon" in " ".join((one.parent() or one).cmdline())]

    def wait(self, seconds: float = 600) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def said(self) -> str:
        """The whole output."""
        return self.log.read_text(errors="replace")

    def left(self) -> list[int]:
        """Which of its processes are still there."""
        return [pid for pid in tuple(self._pids) if psutil.pid_exists(pid) and _runs(pid)]

    def end(self) -> None:
        """End what is left of it."""
        for pid in self.left():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def files_with(folder: Path, secret: str) -> list[str]:
    """The files below a folder that hold a secret."""
    wanted = secret.encode()
    found = []
    for path in folder.rglob("*"):
        # A writer may still be cleaning up there.
        with suppress(FileNotFoundError):
            if path.is_file() and wanted in path.read_bytes():
                found.append(str(path))
    return found
