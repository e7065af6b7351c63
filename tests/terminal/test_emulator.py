"""The terminal of these tests: a person sees whole frames, and all that was written."""

from __future__ import annotations

import os
import sys

import pytest

from tests.terminal.emulator import Emulated

pytestmark = pytest.mark.slow


def test_half_a_frame_is_not_looked_at() -> None:
    code = (
        "import sys, time\n"
        "for text in ('\\x1b[?2026hfirst\\r\\n', 'second\\x1b[?2026l'):\n"
        "    print(text, end='', flush=True); time.sleep(0.3)\n"
        "input()"
    )
    with Emulated([sys.executable, "-c", code], os.environ) as terminal:
        assert terminal.until("first") == "first\nsecond"
        terminal.press("\n")
        assert terminal.end() == 0


def test_what_was_written_last_is_read() -> None:
    code = "import os, signal; os.write(1, b'x' * 5000 + b'end'); os.kill(os.getpid(), signal.SIGKILL)"
    with Emulated([sys.executable, "-c", code], os.environ) as terminal:
        assert terminal.end() == -9
        assert terminal.raw == b"x" * 5000 + b"end"
