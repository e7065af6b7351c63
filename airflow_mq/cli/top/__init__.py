"""`top`: a live view of a ring, one frame of it for a pipe, or one JSON object per frame for a program.

`view` holds the choices of the user, `drawing` turns a snapshot into lines, `reader` reads the store, and `screen`
is the terminal.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError, Namespace
from datetime import timedelta
from typing import TYPE_CHECKING

from ..arguments import limit
from ..command import command, option
from ..serialisation import picked
from ..session import Session
from ..values import age, words

if TYPE_CHECKING:
    from ...queue import Backlog, Block, QueueState
    from ...queue.inspect.top import Look

_SORTS = ("turn", "backlog", "oldest", "name")


def _interval(text: str) -> timedelta:
    found = age(text)
    if found.total_seconds() < 0.1:
        raise ArgumentTypeError(f"invalid interval {text!r}: expected at least 0.1 seconds")
    return found


@command(
    option("--interval AGE", "refresh so often (default: 2s)", _interval, default=_interval("2")),
    option("--once", "print one frame and exit, as without a terminal"),
    option("--search TEXT", "only queues whose name contains TEXT", words, default=""),
    option("--sort", "the order of the queues (default: turn)", choices=_SORTS, default="turn"),
    limit(20, "queues of a printed frame"),
    example="$ top\n$ top --once --sort backlog\n$ top --json --interval 10s",
)
def top(session: Session, args: Namespace) -> None:
    """Show the ring as it moves: turns, blocks and waiting queues; keys select, search, pause, explain.

    Ends with q or Ctrl-C; ? lists the keys. With --json prints a frame a line, without end unless it is --once.
    """
    import os

    interval = args.interval.total_seconds()
    if session.out.as_json:
        _stream(session, args, interval)
    elif args.once or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        _print_frame(session, args)
    else:
        from .live import watch

        with session.queue() as queue:
            watch(queue, session.where or "", interval, args.search, args.sort)


def _stream(session: Session, args: Namespace, interval: float) -> None:
    """Print a frame per line, and a line with an error while the store does not answer."""
    from ...core.errors import MessageQueueError
    from ..output import without_passwords
    from .source import Source

    source = Source(session.queue())
    try:
        while True:
            try:
                look = source.look(args.limit, args.search, args.sort)
                session.out.value(as_plain(look, session.where))
            except MessageQueueError as error:
                if args.once:
                    raise
                session.out.value({"error": type(error).__name__, "message": without_passwords(str(error))})
            sys.stdout.flush()
            if args.once:
                return
            time.sleep(interval)
    finally:
        source.close()


def _print_frame(session: Session, args: Namespace) -> None:
    from ...queue.inspect.top import Watcher
    from .plain import print_frame

    with session.queue() as queue:
        look = Watcher(queue.session).look(args.limit, search=args.search, sort=args.sort)
    print_frame(look, session.where or "")


def as_plain(look: Look, store: str | None) -> dict[str, object]:
    """Return a frame as JSON."""
    return {
        **picked(look, "at ring order limit"),
        "turns": [_turn(one) for one in look.turns],
        "waits": [_turn(one) for one in look.waits],
        "blocks": [_block(one, look) for one in look.blocks],
        "paused": look.paused,
        "totals": look.totals and _totals(look.totals),
        **picked(look, "rate_in rate_out oldest"),
        "store": store,
    }


def _totals(of: Backlog) -> dict[str, object]:
    return {"ready": of.queues, "bytes": of.size, **picked(of, "waiting in_flight set_aside delayed")}


def _turn(one: QueueState) -> dict[str, object]:
    return {**picked(one, "origin priority messages"), "bytes": one.size, **picked(one, "more in_flight paused oldest")}


def _block(one: Block, look: Look) -> dict[str, object]:
    return {
        **picked(one, "id key", state=one.state_at(look.at)),
        **picked(one, "by_hand planned_at ended_at limit", used=one.cost, messages=one.messages),
        **{part: one.result.get(part, 0) for part in ("processed", "failed", "went_back", "set_aside")},
    }
