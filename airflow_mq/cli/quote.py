"""`quote`: what messages would cost before they are sent."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..sheets import Columns
from ..words import many, size, span, when
from .arguments import BLOCK_LIMIT, EVERY, PRIORITY, WEIGHT, duration, positive, words
from .command import UsageError, command, option
from .enqueue import opened
from .ndjson import Lines
from .serialisation import record
from .session import Session

if TYPE_CHECKING:
    from ..engine.queue.inspect.quote import Quote
    from ..engine.rules.message import Message

_TIMES = {"k": 1_000, "M": 1_000_000}


def number(text: str) -> int:
    """Read a number of messages: `500`, `100k` or `1M`."""
    unit = _TIMES.get(text[-1:], 1)
    try:
        return positive(text if unit == 1 else text[:-1]) * unit
    except ArgumentTypeError:
        raise ArgumentTypeError(f"invalid number {text[:80]!r}: expected for example 500, 100k or 1M") from None


@command(
    option("file FILE", "messages as lines of JSON, as `enqueue --ndjson` reads them; - is stdin", nargs="?"),
    option("--as ORIGIN", "the origin of the messages", words, required=True, dest="origin"),
    option("--messages N", "instead of a file, a number of messages of --weight each: 500, 100k, 1M", number),
    WEIGHT,
    PRIORITY,
    BLOCK_LIMIT,
    EVERY,
    option("--within TIME", "end the quote after this time (default: 60s)", duration, default=60.0),
    example="$ quote orders.ndjson --as acme\n$ quote --as acme --messages 100k --weight 30s/2MiB --every 10m",
)
def quote(session: Session, args: Namespace) -> None:
    """Show when unsent messages would finish, their charge, and which origins they would delay.

    Forecasts the next blocks with and without them. What the latest 20 blocks processed is assumed to arrive again.
    """
    if (args.file is None) == (args.messages is None) or (args.messages is not None and args.weight is None):
        raise UsageError("expected a FILE of messages, or --messages N and --weight TIME/SIZE")
    common = {"priority": args.priority, "limit": args.service_weight, "every": args.every, "seconds": args.within}
    with session.queue() as queue:
        if args.messages is not None:
            found = queue.inspect.quote(args.origin, count=args.messages, weight=args.weight, **common)
        else:
            with opened(args.file) as file:
                lines = _of(Lines(file, queue.config, args.origin), args.origin)
                found = queue.inspect.quote(args.origin, lines, weight=args.weight, **common)
        full = queue.inspect.fullness([args.origin])
    _report(session, found)
    for one in full:
        session.out.remark(f"{one.path} stores {size(one.stored)} of its quota of {size(one.quota)}, which is checked")


def _of(lines: Lines, origin: str) -> Iterator[bytes | Message]:
    for own, message in lines.pairs():
        if own != origin:
            raise lines.refused(f"the origin {own!r} differs from --as {origin!r}: a quote is for one queue")
        yield message


_ADDED: Columns = (
    "origin",
    ("added wait>", lambda one: f"{'at least ' if one.more else ''}{span(one.seconds)}"),
)


def _report(session: Session, found: Quote) -> None:
    out = session.out
    if out.as_json:
        out.value(record(found, "longest", "median", added=[record(one) for one in found.added]))
        return
    out.line(f"{many(found.messages, 'message')} of {found.origin}, charged {found.charge}")
    if found.blocks is not None and found.finishes_at is not None:
        out.line(f"would finish in {many(found.blocks, 'block')}, by {when(found.finishes_at)}")
    elif found.stopped:
        out.line(f"would not finish, {many(found.left, 'message')} would be left: {found.stopped}")
    else:
        out.line(f"no end was found within the time of the quote: {many(found.left, 'message')} would be left")
    if found.set_aside:
        out.line(f"{many(found.set_aside, 'message')} of this origin would be set aside")
    delayed = [one for one in found.added if one.seconds >= 1 or one.more]
    out.items(delayed, _ADDED, "no other origin would wait longer")
    out.remark(
        f"assumes a block every {span(found.every)}, and that what the latest 20 blocks processed arrives again"
        + ("; the quote is partial: it ended after --within, or 10,000 blocks" if found.is_partial else "")
    )
