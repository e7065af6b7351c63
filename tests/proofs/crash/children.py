"""Child processes that can be killed at any named point of their work.

A child is forked from the warm test process, which takes milliseconds. It never returns into the
test. It reports the points it passed, and its errors, through a pipe.
"""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from airflow_mq import MessageQueue

#: Seconds after which a child counts as hung.
PATIENCE = 300.0


@dataclass
class Ended:
    """The end of a child: whether it was killed, the points it passed, and its error."""

    killed: bool
    points: list[str]
    error: str


def run_child(work: Callable[[Callable[[str], None]], None], *, kill_at: int | None = None) -> Ended:
    """Run `work` in a child; its probe kills the child at point number `kill_at`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_child(work, writer, kill_at)
    os.close(writer)
    return _await_child(pid, reader)


def start_child(work: Callable[[], None]) -> tuple[int, int]:
    """Start a child without waiting; return its pid and the pipe that carries its errors."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_child(lambda probe: work(), writer, None)
    os.close(writer)
    return pid, reader


def end_child(child: tuple[int, int], *, kill: bool = False) -> Ended:
    """Wait for a started child; with `kill`, kill it first."""
    if kill:
        os.kill(child[0], signal.SIGKILL)
    return _await_child(*child)


def _be_child(work: Callable[[Callable[[str], None]], None], writer: int, kill_at: int | None) -> None:
    passed = 0

    def probe(name: str) -> None:
        nonlocal passed
        os.write(writer, f"{name}\n".encode())
        if passed == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        work(probe)
        status = 0
    except BaseException:
        os.write(writer, ("!" + traceback.format_exc()[-3000:].replace("\n", "\n!") + "\n").encode())
    finally:
        os._exit(status)


def _await_child(pid: int, reader: int) -> Ended:
    text, deadline = b"", time.monotonic() + PATIENCE
    os.set_blocking(reader, False)
    # A pid file descriptor reports the end of the child without polling.
    end = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    try:
        while True:
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            text += _drained(reader)
            if ended_pid:
                break
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise AssertionError(f"the child hangs; its last points were {text[-200:]!r}")
            if end is None:
                time.sleep(0.001)
            else:
                select.select([end], [], [], 0.05)
        text += _drained(reader)
    finally:
        if end is not None:
            os.close(end)
        os.close(reader)
    lines = text.decode().splitlines()
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    error = "\n".join(line[1:] for line in lines if line.startswith("!"))
    if not killed and status:
        raise AssertionError(error or f"the child ended with status {status}")
    return Ended(killed, [line for line in lines if not line.startswith("!")], error)


def _drained(reader: int) -> bytes:
    data = b""
    try:
        while chunk := os.read(reader, 65_536):
            data += chunk
    except BlockingIOError:
        pass
    return data


def probed(queue: MessageQueue, probe: Callable[[str], None] | None) -> MessageQueue:
    """Return the same queue with a probe on its statements."""
    queue.store.probe = probe
    return queue
