"""Child processes for careful attempts: a processor that ends its process fails one message only."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pickle import UnpicklingError

from .. import failures
from ..engine.queue.values import Delivery
from ..engine.rules.outcome import Outcome
from .items import place_of

Outcomes = Iterator[tuple[Delivery, Outcome]]
Call = Callable[[Iterable[Delivery]], Outcomes]


class ChildFailed(Exception):
    """The call raised in the child process, or the process ended before its work did; the text is safe to store."""


def in_child(
    call: Call, messages: Iterable[Delivery], idle: Callable[[], object] | None = None, seconds: float | None = None
) -> Outcomes:
    """Run a call in a child process and yield its outcomes. Raises `ChildFailed` if that fails.

    :param idle: called whenever the child has sent nothing for `seconds`
    """
    group = list(messages)
    places = {place_of(message): message for message in group}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _live(call, group, reading, writing)
    os.close(writing)
    try:
        with Connection(reading, writable=False) as stream:
            while True:
                while idle and not stream.poll(seconds):
                    idle()
                    # A helper that native code forked may hold the pipe open after the child has ended.
                    if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) and not stream.poll(0):
                        raise ChildFailed(_ending(child))
                try:
                    answer = stream.recv()
                except (EOFError, OSError, UnpicklingError):
                    raise ChildFailed(_ending(child)) from None
                if answer is None:
                    return
                if isinstance(answer, BaseException):
                    raise answer
                yield places[answer[0]], answer[1]
    finally:
        _end(child)


def _live(call: Call, group: Sequence[Delivery], reading: int, writing: int) -> None:
    """Run the call in the child; then exit without the parent's `finally` blocks and exit handlers."""
    try:
        os.close(reading)
        with Connection(writing, readable=False) as stream:
            # A helper that outlives the child would hold its half-sent answer open.
            os.register_at_fork(after_in_child=stream.close)
            failure: ChildFailed | None = None
            try:
                for message, outcome in call(group):
                    stream.send((place_of(message), outcome))
            except (Exception, SystemExit) as error:
                failure = ChildFailed(failures.reason_of(error))
            stream.send(failure)
    finally:
        os._exit(0)


def _ending(child: int) -> str:
    """Wait for a child and return how it ended."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in list(signal.Signals) else str(number)
        return f"the process that ran it was ended by {name}"
    return f"the process that ran it ended with exit code {os.waitstatus_to_exitcode(status)}"


def _end(child: int) -> None:
    """Kill a child that still runs, and wait for it."""
    try:
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    except (ChildProcessError, ProcessLookupError):
        pass
