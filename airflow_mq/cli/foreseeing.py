"""`dry-run`, `forecast` and `explain`: what the next blocks would do, and why something waits."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.config import ORDERS, RingConfig
from ..core.priority import PRIORITIES, queue_name
from .command import Command, Option, option
from .history import as_percent
from .looking import NOTHING_READY
from .session import Session
from .values import address, positive, seed, setting, weight, words

if TYPE_CHECKING:
    from ..queue import ForeseenBlock, ForeseenQueue, MessageQueue

#: How many queues of a block a line of the forecast names.
_NAMED = 4


def dry_run(session: Session, args: Namespace) -> None:
    """Tell what the next block would take."""
    with session.queue() as queue:
        block = queue.inspect.dry_run(**_conditions(queue, args))
    if session.out.as_json:
        session.out.value(_plain(block))
        return
    if not block.queues:
        session.out.remark(f"the next block would find nothing: {NOTHING_READY}")
        return
    rows = [
        (queue_name(one.origin, one.priority), one.messages, str(one.weight), one.set_aside, one.expired,
         as_percent(one.offered), as_percent(one.deficit), one.reason)
        for one in block.queues
    ]  # fmt: skip
    session.out.table(
        ("origin", "messages>", "weight>", "set aside>", "expired>", "offered>", "kept>", "stopped by"), rows
    )
    session.out.remark(
        f"messages in all: {block.messages:,}, weight {block.planned} and {block.overhead} besides, "
        f"of {block.limit}; nothing was claimed"
    )
    _tell_stuck(session, block)


def _tell_stuck(session: Session, block: ForeseenBlock) -> None:
    """Name the server whose limit counts, and the queues that wait behind a message which is heavier than that."""
    if block.server is not None:
        session.out.remark(
            f"as a block of {block.server}: with its limit, and of its origins; --limit is for all origins"
        )
    for one in block.queues:
        if one.needs is not None:
            session.out.remark(
                f"{queue_name(one.origin, one.priority)} waits behind a message that needs {one.needs} of "
                f"{block.limit}: raise the limit, or set such messages aside with set_aside_above=block"
            )


def forecast(session: Session, args: Namespace) -> None:
    """Tell what the next blocks would take."""
    with session.queue() as queue:
        found = queue.inspect.forecast(args.blocks, **_conditions(queue, args))
        ready = bool(found) or any(queue.inspect.ring_order(1, one) for one in PRIORITIES)
    if session.out.as_json:
        session.out.value([_plain(block) for block in found])
    elif not found:
        why = "what is ready is passed by; `airflow-mq block dry-run` tells why" if ready else NOTHING_READY
        session.out.remark(f"the next blocks would find nothing: {why}")
    else:
        rows = [
            (block.number, block.messages, len(block.origins), str(block.planned), str(block.limit), _served(block))
            for block in found
        ]
        session.out.table(("block>", "messages>", "queues>", "planned>", "limit>", "served"), rows)
        if len(found) < args.blocks:
            session.out.remark("then nothing is left that a block could take")
        _tell_stuck(session, found[-1])


def explain(session: Session, args: Namespace) -> None:
    """Tell why something waits."""
    with session.queue() as queue:
        how = {"limit": args.limit, "seed": args.seed, "ahead": args.ahead}
        if re.search(r":[0-9]+:[0-9]+(:high)?$", args.what) and not (args.queue or args.below):
            told = queue.inspect.explain_message(address(args.what), **how)
        else:
            told = queue.inspect.explain(args.what, priority=args.priority, below=args.below, **how)
    session.out.value(vars(told))
    session.out.line(told.sentence)
    for remedy in told.remedies:
        session.out.line(f"would help: {remedy}")


def _conditions(queue: MessageQueue, args: Namespace) -> dict[str, Any]:
    said = dict(args.set or ())
    config = RingConfig.from_json({**queue.config.to_json(), **said})
    changes = {name: getattr(config, name) for name in said if name != "order"}
    order = args.order or said.get("order")
    return {"limit": args.limit, "shares": dict(args.share or ()), "order": order, "seed": args.seed, **changes}


def _plain(block: ForeseenBlock) -> dict[str, Any]:
    return {
        "block": block.number, "messages": block.messages, "planned": block.planned, "overhead": block.overhead,
        "limit": block.limit, "order": block.order, "seed": block.seed, "server": block.server,
        "queues": [_plain_queue(one) for one in block.queues],
    }  # fmt: skip


def _plain_queue(one: ForeseenQueue) -> Mapping[str, Any]:
    return {**vars(one), "reason": one.reason or None}


def _served(block: ForeseenBlock) -> str:
    served = [f"{queue_name(one.origin, one.priority)} {one.messages:,}" for one in block.queues if one.messages]
    more = [f"{len(served) - _NAMED:,} more"] if len(served) > _NAMED else []
    return ", ".join([*served[:_NAMED], *more])


def share(text: str) -> tuple[str, int]:
    """`ORIGIN=N`."""
    origin, _, number = words(text).rpartition("=")
    if not origin:
        raise ArgumentTypeError(f"a share reads ORIGIN=N, say acme=3, not {text!r}")
    return origin, positive(number)


_LIMIT = option(
    "--limit", type=weight, metavar="TIME/SIZE",
    help="what a block may cost (default: as the latest DAG that serviced the ring, else as the ring)",
)  # fmt: skip
_SEED = option("--seed", type=seed, metavar="HEX", help="of a ring that shuffles: the seed of the blocks")
_CONDITIONS: tuple[Option, ...] = (
    _LIMIT,
    option("--share", action="append", type=share, metavar="ORIGIN=N", help="as if it had this share; may be repeated"),
    option("--order", choices=ORDERS, help="as if the ring had this order"),
    _SEED,
    option(
        "--set", action="append", type=setting, metavar="NAME=VALUE",
        help="as if the ring were set like this, the value in JSON; may be repeated",
    ),
)  # fmt: skip

DRY_RUN = Command(
    "dry-run", "what the next block would take, queue by queue; nothing is claimed", dry_run, _CONDITIONS,
    about="Also under other limits, shares, orders and settings than the ring has.",
    example="$ block dry-run\n$ block dry-run --share acme=3 --order deficit --limit 60000/1000000",
)  # fmt: skip

FORECAST = Command(
    "forecast", "what the next blocks would take, if nothing changes and every message is done", forecast,
    (
        option("--blocks", type=positive, default=10, metavar="N", help="how many (default: 10)"),
        *_CONDITIONS,
    ),
    about="Blocks that live are not taken to end: what they hold up stays where it is.",
    example="$ block forecast --blocks 5",
)  # fmt: skip

EXPLAIN = Command(
    "explain", "why a queue or a message waits, in which block it runs, and what would change that", explain,
    (
        option("what", type=words, metavar="ORIGIN[:PAGE:INDEX[:high]]", help="a queue, or one message of it"),
        option("--queue", action="store_true", help="it is a queue, though its name looks like an address"),
        option("--below", action="store_true", help="it is a group: of all below it, the one whose turn comes first"),
        option("--priority", choices=PRIORITIES, help="of a queue, the first message of this priority"),
        _LIMIT,
        _SEED,
        option("--ahead", type=positive, default=100, metavar="N", help="look so many blocks ahead (default: 100)"),
    ),
    about="Of a queue, it is about the first message that waits.",
    example="$ explain acme\n$ explain acme:0:17",
)  # fmt: skip
