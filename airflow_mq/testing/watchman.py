"""Leaves no process behind: waits for the end of whoever started it, then ends the sessions that it was told of.

    python -m airflow_mq.testing.watchman [FOLDER]

On its standard input it reads the ids of sessions, one a line, and `end` when all is well and it only has to remove the
folder. The input closes when its parent is gone, however it went. Process groups would not do: Airflow gives each task
a group of its own, and so does Spark for its Python workers; but the session they all inherit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection

import psutil


def members(sessions: Collection[int]) -> list[psutil.Process]:
    """Every process of these sessions."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_sessions(sessions: Collection[int], patience: float = 10.0) -> None:
    """Ask the leaders of these sessions to end, who end their children, and insist after a while."""
    leaders = []
    for session in sessions:
        with contextlib.suppress(psutil.Error):
            leaders.append(psutil.Process(session))
            leaders[-1].terminate()
    psutil.wait_procs(leaders, timeout=patience)
    # What has lost its leader, is still there, or was born meanwhile.
    for _ in range(50):
        left = members(sessions)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def main() -> None:
    # Ctrl-C goes to everybody at the terminal; the watchman is the one who stays until the end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sessions = set()
    for line in sys.stdin:
        if line.strip() == "end":
            break
        sessions.add(int(line))
    else:
        time.sleep(0.2)
        end_sessions(sessions, patience=3.0)
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
