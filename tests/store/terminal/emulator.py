"""A program on a terminal of its own: real keys, and the screen that a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

import pyte

#: Seconds after which a test stops to wait.
PATIENCE = 90.0
#: The bytes with which a frame begins.
_HOME = b"\x1b[H"
#: Written behind all that a program wrote, to be sure that it was read; no program here writes it.
_MARK = b"\x1e"


class Emulated:
    """A program that thinks a person sits before it; a context manager."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], width: int = 100, height: int = 30
    ) -> None:
        self.screen = pyte.Screen(width, height)
        self.stream = pyte.ByteStream(self.screen)
        self.master, self.slave = pty.openpty()
        self.raw = b""
        self._resized_at: int | None = None
        self._set_size(width, height)
        self.before = termios.tcgetattr(self.slave)
        environment = {**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            words, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environment, start_new_session=True,
            preexec_fn=self._take_terminal,
        )  # fmt: skip

    def _take_terminal(self) -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _set_size(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def __enter__(self) -> Emulated:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    @property
    def text(self) -> str:
        """The text of the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self.master, key.encode())

    def resize(self, width: int, height: int) -> None:
        """Change the size; `until` then waits for a frame of the new height."""
        self._resized_at = len(self.raw)
        self.screen.resize(height, width)
        self.screen.reset()
        self._set_size(width, height)

    def read(self, seconds: float) -> bool:
        """Read what the program wrote, and return whether there was anything."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        self.stream.feed(data)
        return True

    @property
    def is_up_to_date(self) -> bool:
        """Whether a whole frame was drawn for the height that the terminal has now."""
        frames = () if self._resized_at is None else self.raw[self._resized_at :].split(_HOME)[1:-1]
        return self._resized_at is None or self.screen.lines in (frame.count(b"\r\n") + 1 for frame in frames)

    def drain(self) -> None:
        """Take all that was written up to now: the system hands it over a moment after it was written."""
        os.write(self.slave, _MARK)
        deadline = time.monotonic() + PATIENCE
        while not self.raw.endswith(_MARK):
            assert time.monotonic() < deadline, "the terminal does not give what was written"
            self.read(0.1)
        self.raw = self.raw.removesuffix(_MARK)

    def until(self, *wanted: str, without: str | None = None) -> str:
        """Wait until the screen shows all of this; return it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text = self.text
            if self.is_up_to_date and all(one in text for one in wanted) and (without is None or without not in text):
                return text
            self.read(0.2)
        raise AssertionError(f"{wanted} did not appear (without {without!r}):\n{self.text}")

    def end(self) -> int:
        """Wait for the program to end; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        code = self.process.wait(1)
        self.drain()
        return code
