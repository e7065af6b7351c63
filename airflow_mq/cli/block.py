"""`block`: planned blocks, and the next ones; `explain`: why a message waits for one."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..engine.rules.characters import listed
from ..engine.rules.config import RingConfig
from ..engine.rules.message import Address
from ..engine.rules.priority import PRIORITIES, queue_name
from ..engine.rules.weight import ZERO
from ..sheets import Columns
from ..words import capitalised, many, outcomes, percent, size
from .arguments import BLOCK_LIMIT, BLOCK_SEED, EVERY, limit, positive, setting, words
from .command import Group, command, option
from .near import meant
from .queue import nothing_waits
from .serialisation import as_percent, record
from .session import Session, store_now

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.queue.blocks.block import Block
    from ..engine.queue.inspect.forecast import ForecastBlock, ForecastQueue

_STATES = ("planned", "settled", "released")
_EMPTY = "no blocks here; each DAG run with block() plans one, and so does MessageQueue.blocks.plan"


def share(text: str) -> tuple[str, int]:
    """Read `ORIGIN=N`."""
    origin, _, number = words(text).rpartition("=")
    if not origin:
        raise ArgumentTypeError(f"invalid share {text!r}: expected ORIGIN=N, for example acme=3")
    return origin, positive(number)


_CONDITIONS = (
    BLOCK_LIMIT,
    option("--share ORIGIN=N", "assume this share; may be repeated", share, action="append"),
    BLOCK_SEED,
    option(
        "--set NAME=VALUE",
        "assume this ring setting, with its value in JSON; may be repeated",
        setting,
        action="append",
    ),
)


@command(
    option("--state", "only blocks in this state (default: all)", choices=_STATES),
    limit(100),
    name="list",
    example="$ block list --state planned",
)
def list_blocks(session: Session, args: Namespace) -> None:
    """List blocks, the latest first."""
    with session.queue() as queue:
        found, now = queue.blocks.list(args.state, args.limit), store_now(queue)
    columns: Columns = (
        ("block>", "id"),
        ("state", lambda block: block.state_at(now)),
        "key",
        "messages>",
        "planned>",
        "limit>",
        "deadline",
        "token",
    )
    session.out.items(found, columns, _EMPTY, [block_fields(one, now) for one in found])


_BLOCK = option("token BLOCK", "the number of the block, or its token, as `block list` prints them", words)


@command(_BLOCK, example="$ block show 12")
def show(session: Session, args: Namespace) -> None:
    """Show one block and its claimed messages."""
    with session.queue() as queue:
        block, now = queue.blocks.get(args.token), store_now(queue)
    names = ("origin", "priority", "messages", "planned")
    claims = [(claim.whose, claim.priority, claim.messages, claim.planned) for claim in block.claims]
    pairs = {"block": block.id, "state": block.state_at(now)}
    pairs |= {name: getattr(block, name) for name in ("key", "messages", "planned", "overhead", "limit", "deadline")}
    if block.seed:
        pairs["seed"] = block.seed.hex()
    session.out.fields(pairs, {**block_fields(block, now), "claims": [dict(zip(names, one)) for one in claims]})
    if claims:
        rows = [(queue_name(origin, rank), *rest) for origin, rank, *rest in claims]
        session.out.table(("origin", "messages>", "planned>"), rows)


@command(_BLOCK, example="$ block release 12")
def release(session: Session, args: Namespace) -> None:
    """Abandon a block: settle the reported results, and requeue the rest.

    Its workers cannot settle it any more.
    """
    with session.queue() as queue:
        block = queue.blocks.get(args.token)
        done = queue.blocks.release(block)
    session.out.answer({"block": block.id, **vars(done)}, f"released block {block.id}: {outcomes(vars(done))}")


@command(
    *_CONDITIONS,
    name="dry-run",
    example="$ block dry-run\n$ block dry-run --share acme=3 --set order=deficit --service-weight 1m/1MB",
)
def dry_run(session: Session, args: Namespace) -> None:
    """Show what the next block would take from each queue; claims nothing.

    The options try other limits, shares, orders and settings than the ring's.
    """
    with session.queue() as queue:
        block = queue.inspect.dry_run(**_conditions(queue, args))
        empty = f"the next block would find nothing: {_nothing(queue)}"
    if session.out.as_json:
        session.out.value(_forecast_fields(block))
    elif session.out.items(block.queues, _QUEUES, empty):
        steps = f" and {block.overhead} for servicing steps" if block.overhead != ZERO else ""
        session.out.remark(
            f"total: {many(block.messages, 'message')}, {block.planned}{steps}, of the limit {block.limit}; "
            "nothing was claimed"
        )
        _report_stuck(session, block)


def _nothing(queue: MessageQueue) -> str:
    ring = queue.inspect.ring(1)
    skipped = f"all ready queues are being skipped; see `{queue.session.cli('queue list')}`"
    return skipped if ring.queues else nothing_waits(queue.session.cli, ring.due)


def _named(one: ForecastQueue) -> str:
    return queue_name(one.origin, one.priority)


_QUEUES: Columns = (
    ("origin", _named),
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
        session.out.remark(f"with the limit and the origins of {block.server}; --service-weight is for all origins")
    for one in block.queues:
        if one.needs is not None:
            session.out.remark(
                f"{_named(one)} waits behind a message that needs {one.needs} of {block.limit}: raise the limit, or "
                "set such messages aside with set_aside_above=block"
            )


@command(
    option("--blocks N", "the number of blocks (default: 10)", positive, default=10),
    EVERY,
    *_CONDITIONS,
    example="$ block forecast --blocks 5\n$ block forecast --every 10m",
)
def forecast(session: Session, args: Namespace) -> None:
    """Show what the next blocks would take, if nothing changes and every message succeeds.

    Blocks come as often as the latest DAG plans them, and blocks in progress end before the second one. Only
    `block dry-run` is exact.
    """
    with session.queue() as queue:
        found = queue.inspect.forecast(args.blocks, every=args.every, **_conditions(queue, args))
        empty = f"the next blocks would find nothing: {_nothing(queue)}"
    columns = (*_BLOCKS, "at", _SERVED) if found and found[0].at else (*_BLOCKS, _SERVED)
    if session.out.items(found, columns, empty, map(_forecast_fields, found)):
        if found[0].at is None and args.every is None:
            session.out.remark("it is not known how often blocks come; --every assumes a time between two")
        if len(found) < args.blocks:
            session.out.remark("then nothing is left that a block could take")
        _report_stuck(session, found[-1])


def _serviced(block: ForecastBlock) -> str:
    serviced = [one for one in block.queues if one.messages]
    return listed(serviced, lambda one: f"{_named(one)} {one.messages:,}", 4)


_BLOCKS: Columns = (
    ("block>", "number"),
    "messages>",
    ("queues>", lambda one: len(one.origins)),
    "planned>",
    "limit>",
)
_SERVED = ("served", _serviced)


def _conditions(queue: MessageQueue, args: Namespace) -> dict[str, Any]:
    settings = dict(args.set or ())
    config = RingConfig.from_json({**queue.config.to_json(), **settings})
    changes = {name: getattr(config, name) for name in settings}
    return {"limit": args.service_weight, "shares": dict(args.share or ()), "seed": args.seed, **changes}


def _forecast_fields(block: ForecastBlock) -> dict[str, object]:
    value = record(block, "messages", queues=[record(one, reason=one.reason or None) for one in block.queues])
    return {"block": value.pop("number"), **value}


def block_fields(block: Block, now: datetime) -> dict[str, object]:
    """Return a block as JSON shows it."""
    return record(block, overdue=block.state_at(now) == "overdue")


@command(
    option("what ORIGIN[:PAGE:INDEX[:high]]", "a queue, or one message of it", words),
    option("--queue", "read it as the name of a queue, though it looks like an address"),
    option("--below", "read it as the name of a group: explain the queue whose turn is first"),
    option("--priority", "explain the first message of this priority", choices=PRIORITIES),
    BLOCK_LIMIT,
    BLOCK_SEED,
    option("--ahead N", "look N blocks ahead (default: 100)", positive, default=100),
    example="$ explain acme\n$ explain acme:0:17",
)
def explain(session: Session, args: Namespace) -> None:
    """Print why a queue or message waits, which block runs it, and what would change that.

    For a queue, explains the first waiting message.
    """
    with session.queue() as queue:
        how = {"limit": args.service_weight, "seed": args.seed, "ahead": args.ahead}
        if re.search(r":[0-9]+:[0-9]+(:high)?$", args.what) and not (args.queue or args.below):
            found = queue.inspect.explain_message(Address.parse(args.what), **how)
        else:
            found = queue.inspect.explain(args.what, priority=args.priority, below=args.below, **how)
        near = meant(queue, args.what) if found.reason == "empty" else ""
        if found.reason == "nowhere" and queue.footprint(args.what).count:
            near = "; to explain the queue of this name: --queue"
        full = queue.inspect.fullness([found.origin])
    session.out.value(vars(found))
    # A name of a queue or of its group keeps its letters.
    sentence = capitalised(found.sentence, found.origin.partition("/")[0])
    session.out.line(sentence.removesuffix(".") + near if near else sentence)
    for remedy in found.remedies:
        session.out.line(f"would help: {remedy}")
    for one in full:
        session.out.line(f"{one.path}: {percent(one.part)} of its quota of {size(one.quota)} is stored")


BLOCK = Group(
    "block",
    "list and release blocks, and predict the next ones",
    (list_blocks, show, release, dry_run, forecast),
    example="$ block list --state planned\n$ block dry-run",
)
