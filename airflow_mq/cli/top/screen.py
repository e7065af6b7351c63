"""The terminal of the live view: the whole screen and single keys, restored at the end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
#: A terminal that knows these draws all of a frame at once.
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"
_NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b": "esc",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x15": "clear",
}
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|\x1b|[^\x1b]", re.DOTALL)
#: Signals that end the program; the terminal is restored first.
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def keys(text: str) -> list[str]:
    """Return the pressed keys: characters as they are, other keys by name."""
    return [_NAMES.get(one, one if len(one) == 1 else "") for one in _KEY.findall(text)]


class Screen:
    """The screen of the terminal of this process; a context manager."""

    def __init__(self) -> None:
        self._input: int | None = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._heard: list[int] = []
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._shown = False

    def __enter__(self) -> Screen:
        for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, *_ENDING):
            self._handlers[number] = signal.signal(number, self._hear)
        self._wakeup_before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._show()
        return self

    def __exit__(self, *error: object) -> None:
        self._hide()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)
        for number in self._heard:
            if number in _ENDING:
                # End by the same signal, so that the parent process sees it.
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

    def wake(self) -> None:
        """Make `wait` return; callable from any thread."""
        with suppress(OSError):
            os.write(self._wake_write, b"\0")

    def wait(self, seconds: float) -> list[str] | None:
        """Return keys as soon as there are some or another event happens; none if the program is to end."""
        watched = [self._wake_read] if self._input is None else [self._wake_read, self._input]
        ready = select.select(watched, [], [], seconds)[0]
        if self._wake_read in ready:
            with suppress(OSError):
                os.read(self._wake_read, 4096)
        if self._obey():
            return None
        if self._input not in ready or self._input is None:
            return []
        try:
            data = os.read(self._input, 4096)
        except OSError:
            data = b""
        return keys(data.decode("utf-8", "ignore")) if data else None

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the screen by these lines."""
        # No line end after the last line: the screen would scroll.
        body = "\r\n".join(f"{line}\x1b[K" for line in lines)
        sys.stdout.write(f"{_BEGIN}{body}{_END}")
        sys.stdout.flush()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard.append(number)

    def _obey(self) -> bool:
        """Handle the received signals; return whether the program is to end."""
        if any(number in (signal.SIGINT, *_ENDING) for number in self._heard):
            return True
        if signal.SIGTSTP in self._heard:
            self._hide()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._show()
        self._heard.clear()
        return False

    def _show(self) -> None:
        if self._input is not None:
            self._before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)
        self._write(_ENTER)
        self._shown = True

    def _hide(self) -> None:
        if not self._shown:
            return
        self._shown = False
        self._write(_LEAVE)
        if self._input is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        # The terminal may be gone.
        with suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()
