"""A client process: `python -m lab.chaos.client ROLE NUMBER URI FOLDER OWNER`.

It works until the folder has a file `stop`, or until the process OWNER ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.powerloss.workloads import FILE_ROLES, PRAGMAS, weaken

from .journal import Journal
from .network import enter
from .workload import Desk
from .workloads import ROLES

ROOT = Path(__file__).parents[2]


def run_client(role: str, number: int, uri: str, folder: Path, owner: int, namespace: str | None = None) -> None:
    """Work in this process, which is a fork of a warm one: a fork needs milliseconds."""
    if namespace is not None:
        enter(namespace)
    with (folder / "stderr").open("ab") as errors:
        os.dup2(errors.fileno(), 2)
    weaken(folder / PRAGMAS)
    journal = Journal(folder, f"{role}-{number}")
    journal.write("started")
    roles = FILE_ROLES if uri.startswith("sqlite:") else ROLES
    roles[role](Desk(uri, folder, number, journal, owner)).run()
    journal.write("ended")


def run_program(role: str, number: int, uri: str, folder: Path, owner: int, environment: Mapping[str, str]) -> None:
    """Work in a program of its own, which starts with more environment variables than this process."""
    command = [sys.executable, "-m", "lab.chaos.client", role, str(number), uri, str(folder), str(owner)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **environment})


if __name__ == "__main__":
    run_client(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
