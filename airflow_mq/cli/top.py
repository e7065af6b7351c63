"""`top`: a live view of a ring, one frame of it for a pipe, or one JSON object per frame for a program."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ..engine.rules.errors import MessageQueueError
from .arguments import duration, limit
from .block import block_fields
from .command import command, option
from .output import shown, without_passwords
from .serialisation import picked, record
from .session import Session, at_sigterm, interrupt

if TYPE_CHECKING:
    from rich.live import Live

    from .screen import Screen
    from .watching import Look, Watcher

#: The pause after a reading, at least, as a multiple of its duration.
REST = 2.0


def _interval(text: str) -> float:
    found = duration(text)
    if found < 0.1:
        raise ArgumentTypeError(f"invalid interval {text!r}: expected at least 0.1 seconds")
    return found


@command(
    option("--interval AGE", "time between two refreshes (default: 2s)", _interval, default=2.0),
    option("--once", "print one frame and exit, as without a terminal"),
    option("--sort", "the order of the queues (default: turn)", choices=("turn", "backlog", "oldest"), default="turn"),
    limit(60, "queues"),
    example="$ top\n$ top --once --sort backlog\n$ top --json --interval 10s",
)
def top(session: Session, args: Namespace) -> None:
    """Show a ring as it moves: totals, rates, who services it, the queues in turn, and the blocks.

    Reads only. Ends with Ctrl-C. With --json prints a frame a line, without end unless it is --once.
    """
    from .screen import Screen
    from .watching import Watcher

    watcher, interval = Watcher(session.queue, args.sort, args.limit), args.interval
    is_live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    try:
        look = watcher.look()
        if args.once or not (session.out.as_json or is_live):
            session.out.value(as_plain(look, session.where))
            session.out.lines(Screen(session.where or "", look).lines(session.out.width()))
        elif session.out.as_json:
            for reading in _readings(watcher, interval):
                if isinstance(reading, MessageQueueError):
                    session.out.value({"error": type(reading).__name__, "message": without_passwords(str(reading))})
                else:
                    session.out.value(as_plain(reading, session.where))
                sys.stdout.flush()
        else:
            _watch(watcher, Screen(session.where or "", look, interval))
    except KeyboardInterrupt:
        pass
    finally:
        watcher.close()


def _readings(watcher: Watcher, interval: float) -> Iterator[Look | MessageQueueError]:
    """Yield readings without end, or an error while the store does not answer."""
    while True:
        began = time.monotonic()
        try:
            yield watcher.look()
        except MessageQueueError as error:
            yield error
        time.sleep(max(interval, REST * (time.monotonic() - began)))


def _watch(watcher: Watcher, screen: Screen) -> None:
    """Show reading after reading until Ctrl-C; the last one stays while the store does not answer."""
    from rich.console import Console
    from rich.live import Live

    live = Live(
        screen,
        console=Console(file=sys.stdout, highlight=False),
        screen=True,
        # The terminal may change its size.
        refresh_per_second=2,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    away: datetime | None = None
    readings = _readings(watcher, screen.interval or 0.0)
    with at_sigterm(interrupt), _screen(live):
        while True:
            with _signals(signal.SIG_UNBLOCK):
                reading = next(readings)
            if isinstance(reading, MessageQueueError):
                away = away or datetime.now(timezone.utc)
                text = shown(without_passwords(str(reading)))
                screen.trouble = f"the store does not answer since {away:%H:%M:%S} UTC, trying again: {text}"
            else:
                away = None
                screen.show(reading)
            live.refresh()


@contextmanager
def _signals(how: int) -> Iterator[None]:
    """Block or unblock the signals that end or stop `top`; a handler within a frame would mix its output with it."""
    before = signal.pthread_sigmask(how, (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _screen(live: Live) -> Iterator[None]:
    """Take the whole screen without echo and log lines; leave the terminal as it was, also while Ctrl-Z stops this."""
    import termios

    terminal = sys.stdout.fileno()
    before = termios.tcgetattr(terminal)

    def take() -> None:
        nonlocal before
        before = termios.tcgetattr(terminal)
        # Without echo; and Ctrl-C would discard what was not read yet, and so cut a frame.
        silent = [*before[:3], before[3] & ~termios.ECHO | termios.NOFLSH, *before[4:]]
        termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
        live.start(refresh=True)

    def give() -> None:
        live.stop()
        # What was typed meanwhile is not for the shell.
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)

    def pause(*_: object) -> None:
        with _signals(signal.SIG_BLOCK):
            give()
            os.kill(os.getpid(), signal.SIGSTOP)
            take()

    with _signals(signal.SIG_BLOCK):
        stopped = signal.signal(signal.SIGTSTP, pause)
        logging.disable(logging.CRITICAL)
        try:
            take()
            yield
        finally:
            with suppress(OSError):  # the terminal may be gone
                give()
            logging.disable(logging.NOTSET)
            signal.signal(signal.SIGTSTP, stopped)


def as_plain(look: Look, store: str | None) -> dict[str, object]:
    """Return a frame as JSON: queues, blocks and totals as the commands that list them print them."""
    usual = look.servicing.usual_interval
    servers = [record(one, usual_interval=usual(one)) for one in look.servicing.servers]
    return record(
        look,
        blocks=[block_fields(one, look.at) for one in look.blocks],
        backlog=picked(look.backlog, "messages size queues waiting in_flight set_aside delayed age weight blocks"),
        servicing=picked(look.servicing, "holder held_until", servers=servers),
        queues=[record(state, "ready", why=why) for _, state, why in look.rows()],
        store=store,
    )
