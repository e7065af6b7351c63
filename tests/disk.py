"""A small file system in memory, for a server whose disk is full."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def can_mount() -> bool:
    """Return whether this user may mount file systems."""
    try:
        with small_disk(1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Yield the folder of a file system of some megabytes."""
    folder = Path(tempfile.mkdtemp(prefix="mq-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        folder.rmdir()


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no free byte on the file system of a folder."""
    filler = folder / "filler"
    try:
        with filler.open("wb") as file, suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(1 << 16))
        yield
    finally:
        filler.unlink(missing_ok=True)
