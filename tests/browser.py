"""A Chromium for tests: the one that is installed; else Playwright's, else Debian's, fetched when there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: Nothing is asked of anybody but the page under test.
QUIET = [
    "--disable-background-networking", "--disable-component-update", "--disable-gpu", "--disable-quic",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
NONE = "no Chromium: install one so that `chromium` is on the PATH, or run `python -m playwright install chromium`"


def installed() -> str | None:
    """A Chromium that is installed; where packages put theirs is looked at, too, whatever the PATH leaves out."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/bin", "/usr/local/bin"))
    return next(filter(None, (shutil.which(name, path=places) for name in NAMES)), None)


def chromium(kit: Any) -> str:
    """Where a Chromium is; fetched, if need be, in the way that this machine allows."""
    own = str(kit.chromium.executable_path)
    for fetch in ([], *ways()):
        if fetch:
            subprocess.run(fetch, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        found = installed() or (own if os.path.exists(own) else None)
        if found:
            return found
    raise RuntimeError(NONE)


def ways() -> Iterator[list[str]]:
    """How to fetch one: as the system's package where that is allowed, else as Playwright does it."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        yield ["apt-get", "update", "-qq"]
        yield ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
    yield [sys.executable, "-m", "playwright", "install", "chromium"]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as kit:
        # Its sandbox refuses root, which tests in containers are.
        args = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        opened = kit.chromium.launch(executable_path=chromium(kit), args=args, timeout=180_000)
        yield opened
        opened.close()
