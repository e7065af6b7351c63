"""`top`: a live view of a ring, one frame of it for a pipe, or one JSON object per frame for a program."""

from __future__ import annotations

import logging
import os
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from .arguments import age, limit
from .block import block_fields
from .command import command, option
from .output import shown, without_passwords
from .serialisation import picked, record
from .session import Session, at_sigterm, interrupt

if TYPE_CHECKING:
    from rich.live import Live

    from .watching import Look, Watcher

#: The pause after a reading, at least, as a multiple of its duration.
REST = 2.0
#: Width of a frame without a terminal and without COLUMNS.
WIDTH = 100


def _interval(text: str) -> timedelta:
    found = age(text)
    if found.total_seconds() < 0.1:
        raise ArgumentTypeError(f"invalid interval {text!r}: expected at least 0.1 seconds")
    return found


@command(
    option("--interval AGE", "refresh so often (default: 2s)", _interval, default=_interval("2")),
    option("--once", "print one frame and exit, as without a terminal"),
    option("--sort", "the order of the queues (default: turn)", choices=("turn", "backlog", "oldest"), default="turn"),
    limit(60, "queues"),
    example="$ top\n$ top --once --sort backlog\n$ top --json --interval 10s",
)
def top(session: Session, args: Namespace) -> None:
    """Show a ring as it moves: totals, rates, who services it, the queues in turn, and the blocks.

    Reads only. Ends with Ctrl-C. With --json prints a frame a line, without end unless it is --once.
    """
    from .watching import Watcher

    watcher = Watcher(session.queue(), args.sort, args.limit)
    try:
        if session.out.as_json:
            _stream(session, watcher, args)
        elif args.once or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            from .frame import Frame

            columns = os.environ.get("COLUMNS", "")
            width = int(columns) if columns.isascii() and columns.isdecimal() and len(columns) < 5 else WIDTH
            session.out.draw(Frame(session.where or "", watcher.look()), width)
        else:
            _watch(watcher, session.where or "", args.interval.total_seconds())
    finally:
        watcher.close()


def _stream(session: Session, watcher: Watcher, args: Namespace) -> None:
    """Print a frame per line, and a line with an error while the store does not answer."""
    from ..engine.rules.errors import MessageQueueError

    with suppress(KeyboardInterrupt):
        while True:
            try:
                session.out.value(as_plain(watcher.look(), session.where))
            except MessageQueueError as error:
                if args.once:
                    raise
                session.out.value({"error": type(error).__name__, "message": without_passwords(str(error))})
            sys.stdout.flush()
            if args.once:
                return
            time.sleep(args.interval.total_seconds())


def _watch(watcher: Watcher, store: str, interval: float) -> None:
    """Show frame after frame until Ctrl-C; the last one stays while the store does not answer."""
    from rich.console import Console
    from rich.live import Live

    from ..engine.rules.errors import MessageQueueError
    from .frame import Frame

    frame = Frame(store, watcher.look(), interval)
    live = Live(
        frame,
        console=Console(file=sys.stdout, highlight=False),
        screen=True,
        # The terminal may change its size.
        refresh_per_second=2,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    away: datetime | None = None
    with suppress(KeyboardInterrupt), at_sigterm(interrupt), _screen(live):
        while True:
            began = time.monotonic()
            try:
                frame.show(watcher.look())
                away = None
            except MessageQueueError as error:
                away = away or datetime.now(timezone.utc)
                text = shown(without_passwords(str(error)))
                frame.trouble = f"the store does not answer since {away:%H:%M:%S} UTC, trying again: {text}"
            live.refresh()
            time.sleep(max(interval, REST * (time.monotonic() - began)))


@contextmanager
def _screen(live: Live) -> Iterator[None]:
    """Take the whole screen without echo and log lines; leave the terminal as it was, also while Ctrl-Z stops this."""
    import signal
    import termios

    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
    before: list[Any] | None = None

    def take() -> None:
        nonlocal before
        if keyboard is not None:
            before = termios.tcgetattr(keyboard)
            silent = termios.tcgetattr(keyboard)
            silent[3] &= ~termios.ECHO
            termios.tcsetattr(keyboard, termios.TCSADRAIN, silent)
        live.start(refresh=True)

    def give() -> None:
        live.stop()
        if keyboard is not None and before is not None:
            # What was typed meanwhile is not for the shell.
            termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)

    def pause(*_: object) -> None:
        give()
        os.kill(os.getpid(), signal.SIGSTOP)
        take()

    stopped = signal.signal(signal.SIGTSTP, pause)
    logging.disable(logging.CRITICAL)
    try:
        take()
        yield
    finally:
        # A second Ctrl-C leaves no terminal behind that hides its cursor.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError):  # the terminal may be gone
            give()
        logging.disable(logging.NOTSET)
        signal.signal(signal.SIGTSTP, stopped)


def as_plain(look: Look, store: str | None) -> dict[str, object]:
    """Return a frame as JSON: queues, blocks and totals as the commands that list them print them."""
    return record(
        look,
        blocks=[block_fields(one, look.at) for one in look.blocks],
        backlog=picked(look.backlog, "messages size queues waiting in_flight set_aside delayed age weight blocks"),
        servicing=picked(look.servicing, "servers holder held_until"),
        store=store,
    )
