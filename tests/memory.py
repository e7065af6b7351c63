"""Memory-backed folder for the files of tests that need no disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
#: Required free bytes; in a container, this folder often has only 64 MB.
ENOUGH = 2 << 30


def in_memory() -> Path | None:
    """Return a folder in memory, or `None` for the usual folder of temporary files."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if usable and shutil.disk_usage(MEMORY).free >= ENOUGH else None
