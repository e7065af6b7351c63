"""Watchman: ends the sessions of a test when its parent process ends.

    python -m airflow_mq.testing.watchman

It reads the ids of sessions from standard input, one per line, and `end` if they have ended. The input closes when the
parent ends for any reason. Process groups are not enough: Airflow gives each task a group of its own,
and so does Spark for its Python workers. All of them inherit the session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection

import psutil


def members(sessions: Collection[int]) -> list[psutil.Process]:
    """Return every process of these sessions."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_sessions(sessions: Collection[int], patience: float = 10.0) -> None:
    """Terminate the leaders of these sessions, which end their children; kill the rest after `patience` seconds."""
    leaders = []
    for session in sessions:
        with contextlib.suppress(psutil.Error):
            leaders.append(psutil.Process(session))
            leaders[-1].terminate()
    psutil.wait_procs(leaders, timeout=patience)
    # Processes without a leader, still running, or started meanwhile.
    for _ in range(50):
        left = members(sessions)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def main() -> None:
    """Read sessions until the input ends, then end them."""
    # Ctrl-C reaches all processes of the terminal; the watchman stays until the end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sessions = set()
    for line in sys.stdin:
        if line.strip() == "end":
            break
        sessions.add(int(line))
    else:
        time.sleep(0.2)
        end_sessions(sessions, patience=3.0)


if __name__ == "__main__":
    main()
