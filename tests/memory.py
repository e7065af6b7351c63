"""Where files of tests are kept in memory: what kills no machine need not wait for a disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
#: What has to be free there, in bytes: in a container it is often as small as 64 MB.
ENOUGH = 2 << 30


def in_memory() -> Path | None:
    """A folder in memory, or None, which is the usual place for temporary files."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if usable and shutil.disk_usage(MEMORY).free >= ENOUGH else None
