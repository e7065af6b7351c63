"""`block dry-run`, `block forecast` and `explain`: the next blocks, and the reason why something waits."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from ..core.config import BLOCK_PARTS, ORDERS, RingConfig
from ..core.priority import PRIORITIES, queue_name
from .command import command, option
from .output import Columns
from .queue import NOTHING_READY
from .serialisation import record
from .session import Session
from .values import address, positive, seed, setting, weight, words

if TYPE_CHECKING:
    from ..queue import ForecastBlock, ForecastQueue, MessageQueue

#: How many queues of a block a line of the forecast names.
_NAMED = 4


def share(text: str) -> tuple[str, int]:
    """Read `ORIGIN=N`."""
    origin, _, number = words(text).rpartition("=")
    if not origin:
        raise ArgumentTypeError(f"invalid share {text!r}: expected ORIGIN=N, for example acme=3")
    return origin, positive(number)


_LIMIT = option(
    "--limit TIME/SIZE",
    "the limit of a block (default: that of the latest DAG that serviced the ring, else the ring's)",
    weight,
)
_SEED = option("--seed HEX", "the seed of the blocks, in a ring that shuffles", seed)
_CONDITIONS = (
    _LIMIT,
    option("--share ORIGIN=N", "assume this share; may be repeated", share, action="append"),
    option("--order", "assume this order", choices=ORDERS),
    _SEED,
    option(
        "--set NAME=VALUE",
        "assume this ring setting, with its value in JSON; may be repeated",
        setting,
        action="append",
    ),
)


@command(
    *_CONDITIONS,
    name="dry-run",
    example="$ block dry-run\n$ block dry-run --share acme=3 --order deficit --limit 60000/1000000",
)
def dry_run(session: Session, args: Namespace) -> None:
    """Show what the next block would take from each queue; claims nothing.

    Also under other limits, shares, orders and settings than the ring's.
    """
    with session.queue() as queue:
        block = queue.inspect.dry_run(**_conditions(queue, args))
    if session.out.as_json:
        session.out.value(_plain(block))
    elif session.out.items(block.queues, _QUEUES, f"the next block would find nothing: {NOTHING_READY}"):
        session.out.remark(
            f"messages in all: {block.messages:,}, weight {block.planned} and {block.overhead} besides, "
            f"of {block.limit}; nothing was claimed"
        )
        _report_stuck(session, block)


def _name(one: ForecastQueue) -> str:
    return queue_name(one.origin, one.priority)


_QUEUES: Columns = (
    ("origin", _name),
    "messages>",
    "weight>",
    "set aside>",
    "expired>",
    ("offered>", lambda one: as_percent(one.offered)),
    ("kept>", lambda one: as_percent(one.deficit)),
    ("stopped by", "reason"),
)


def _report_stuck(session: Session, block: ForecastBlock) -> None:
    """Name the server whose limit counts, and the queues whose first message is heavier than that limit."""
    if block.server is not None:
        session.out.remark(f"with the limit and the origins of {block.server}; --limit is for all origins")
    for one in block.queues:
        if one.needs is not None:
            session.out.remark(
                f"{_name(one)} waits behind a message that needs {one.needs} of {block.limit}: raise the limit, or set "
                "such messages aside with set_aside_above=block"
            )


@command(
    option("--blocks N", "the number of blocks (default: 10)", positive, default=10),
    *_CONDITIONS,
    example="$ block forecast --blocks 5",
)
def forecast(session: Session, args: Namespace) -> None:
    """Show what the next blocks would take, if nothing changes and every message succeeds.

    Planned blocks are assumed not to end: their messages stay in flight.
    """
    with session.queue() as queue:
        found = queue.inspect.forecast(args.blocks, **_conditions(queue, args))
        ready = bool(found) or any(queue.inspect.ring_order(1, one) for one in PRIORITIES)
    why = "all ready queues are being skipped; see `airflow-mq block dry-run`" if ready else NOTHING_READY
    if session.out.items(found, _BLOCKS, f"the next blocks would find nothing: {why}", map(_plain, found)):
        if len(found) < args.blocks:
            session.out.remark("then nothing is left that a block could take")
        _report_stuck(session, found[-1])


def _serviced(block: ForecastBlock) -> str:
    serviced = [f"{_name(one)} {one.messages:,}" for one in block.queues if one.messages]
    more = [f"{len(serviced) - _NAMED:,} more"] if len(serviced) > _NAMED else []
    return ", ".join([*serviced[:_NAMED], *more])


_BLOCKS: Columns = (
    ("block>", "number"),
    "messages>",
    ("queues>", lambda one: len(one.origins)),
    "planned>",
    "limit>",
    ("served", _serviced),
)


def _conditions(queue: MessageQueue, args: Namespace) -> dict[str, Any]:
    settings = dict(args.set or ())
    config = RingConfig.from_json({**queue.config.to_json(), **settings})
    changes = {name: getattr(config, name) for name in settings if name != "order"}
    order = args.order or settings.get("order")
    return {"limit": args.limit, "shares": dict(args.share or ()), "order": order, "seed": args.seed, **changes}


def _plain(block: ForecastBlock) -> dict[str, object]:
    value = record(block, "messages", queues=[record(one, reason=one.reason or None) for one in block.queues])
    return {"block": value.pop("number"), **value}


@command(
    option("what ORIGIN[:PAGE:INDEX[:high]]", "a queue, or one message of it", words),
    option("--queue", "read it as the name of a queue, though it looks like an address"),
    option("--below", "read it as the name of a group: explain the queue whose turn is first"),
    option("--priority", "explain the first message of this priority", choices=PRIORITIES),
    _LIMIT,
    _SEED,
    option("--ahead N", "look N blocks ahead (default: 100)", positive, default=100),
    example="$ explain acme\n$ explain acme:0:17",
)
def explain(session: Session, args: Namespace) -> None:
    """Print why a queue or message waits, which block runs it, and what would change that.

    For a queue, explains the first waiting message.
    """
    with session.queue() as queue:
        how = {"limit": args.limit, "seed": args.seed, "ahead": args.ahead}
        if re.search(r":[0-9]+:[0-9]+(:high)?$", args.what) and not (args.queue or args.below):
            found = queue.inspect.explain_message(address(args.what), **how)
        else:
            found = queue.inspect.explain(args.what, priority=args.priority, below=args.below, **how)
    session.out.value(vars(found))
    session.out.line(found.sentence)
    for remedy in found.remedies:
        session.out.line(f"would help: {remedy}")


def as_percent(parts: int) -> str:
    """Return a deficit, which is counted in parts of a block, as a percentage."""
    return f"{100 * parts / BLOCK_PARTS:.2f}%"
