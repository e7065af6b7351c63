"""Chromium for tests: an installed one, else Playwright's, else Debian's."""

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
#: Options that suppress requests to other hosts.
QUIET = [
    "--disable-background-networking", "--disable-component-update", "--disable-gpu", "--disable-quic",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
NONE = "no Chromium: install one so that `chromium` is on the PATH, or run `python -m playwright install chromium`"


def installed() -> str | None:
    """Return an installed Chromium from the PATH or the usual folders of packages."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/bin", "/usr/local/bin"))
    return next(filter(None, (shutil.which(name, path=places) for name in NAMES)), None)


def chromium(kit: Any) -> str:
    """Return the path of Chromium; download it first if none is installed."""
    own = str(kit.chromium.executable_path)
    for fetch in ([], *ways()):
        if fetch:
            subprocess.run(fetch, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        path = installed() or (own if os.path.exists(own) else None)
        if path:
            return path
    raise RuntimeError(NONE)


def ways() -> Iterator[list[str]]:
    """Yield commands that install Chromium: the system's package manager, then Playwright."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        yield ["apt-get", "update", "-qq"]
        yield ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
    yield [sys.executable, "-m", "playwright", "install", "chromium"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a headless browser."""
    with sync_playwright() as kit:
        # Chromium's sandbox does not run as root, as tests in containers do.
        args = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        opened = kit.chromium.launch(executable_path=chromium(kit), args=args, timeout=180_000)
        yield opened
        opened.close()
