"""Recording of all changes of the files below a folder, in the order in which they happened."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("recorder.c")
HEADER = struct.Struct("IIQQQ")


@dataclass(frozen=True)
class Change:
    """A change of a file or of the entries of a folder.

    Kinds: `W` write, `T` new size, `S` completed sync, `C` new file, `U` unlink, `R` rename, `K` a killed process.
    """

    kind: str
    path: str
    inode: int
    #: Position of a write, or the new size.
    offset: int
    #: Bytes of a write, or the new path.
    data: bytes


def can_record() -> bool:
    """Return whether this machine has a C compiler and a loader that takes the recorder."""
    return shutil.which("cc") is not None and os.uname().sysname == "Linux"


class Recorder:
    """The recorder's library and its log."""

    def __init__(self, folder: Path, kill_every: int = 0) -> None:
        """Prepare to record what happens below a folder.

        :param kill_every: writes to the database file after which a process is killed, on average; 0 for never.
        """
        self.folder, self.kill_every = folder, kill_every
        self.log = folder.with_name(f"{folder.name}.log")
        self._library = folder.with_name(f"{folder.name}.so")

    def environment(self) -> dict[str, str]:
        """Return the environment of programs that are recorded."""
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        return {
            "LD_PRELOAD": str(self._library),
            "MQ_RECORD": str(self.folder),
            "MQ_KILL_EVERY": str(self.kill_every),
        }

    def clear(self) -> None:
        """Forget what was recorded; nothing may run that is recorded."""
        if self.log.exists():
            os.truncate(self.log, 0)

    def changes(self) -> Iterator[Change]:
        """Read the log."""
        with self.log.open("rb") as file:
            while header := file.read(HEADER.size):
                kind, length, inode, offset, size = HEADER.unpack(header)
                path = file.read(length).decode()
                data = file.read(size) if chr(kind) in "WR" else b""
                yield Change(chr(kind), path, inode, offset, data)
