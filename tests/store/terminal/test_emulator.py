"""The terminal of these tests: all that was written is read."""

from __future__ import annotations

import os
import sys

import pytest

from tests.store.terminal.emulator import Emulated

pytestmark = pytest.mark.slow


def test_what_was_written_last_is_read() -> None:
    code = "import os, signal; os.write(1, b'x' * 5000 + b'end'); os.kill(os.getpid(), signal.SIGKILL)"
    with Emulated([sys.executable, "-c", code], os.environ) as terminal:
        assert terminal.end() == -9
        assert terminal.raw == b"x" * 5000 + b"end"
