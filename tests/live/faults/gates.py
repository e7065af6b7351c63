"""Gates: while a test keeps one closed, the tasks that reach it wait there."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Variable with the folder of the gates.
VARIABLE = "MQ_TEST_GATES"
#: While this file exists, each third use of an XCom in the way that it names fails.
FAILING = "xcom-fails"
#: Folder of Spark's event logs.
EVENT_LOGS = "spark-events"


class Gate:
    """A place in the code of a DAG or a processor, for one ring."""

    def __init__(self, folder: Path, ring: str, name: str) -> None:
        self._bar, self._visits = folder / f"{ring}.{name}.closed", folder / f"{ring}.{name}.visits"

    def close(self) -> None:
        self._bar.touch()

    def open(self) -> None:
        self._bar.unlink(missing_ok=True)

    def visitors(self) -> list[int]:
        """Return the ids of the processes that have met the closed gate."""
        return [int(pid) for pid in self._visits.read_text().split()] if self._visits.exists() else []

    def pass_through(self) -> None:
        """Wait until the gate is open."""
        if self._bar.exists():
            with self._visits.open("a") as visits:
                visits.write(f"{os.getpid()}\n")
        while self._bar.exists():
            time.sleep(0.02)


def gates_folder() -> Path:
    """Return the folder of the gates, in a process of Airflow or Spark."""
    return Path(os.environ[VARIABLE])


def gate(ring: str, name: str) -> Gate:
    """Return a gate, in a process of Airflow or Spark."""
    return Gate(gates_folder(), ring, name)


def wait_at_own_gate(context: Mapping[str, Any]) -> None:
    """Wait at the gate with the task's name, before its operator begins."""
    gate(context["params"]["ring"], context["ti"].task_id.rpartition(".")[2]).pass_through()
