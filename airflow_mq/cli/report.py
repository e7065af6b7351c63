"""`report`: fairness, the ledger, measured weights and simulations."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from typing import Any

from ..core.fairness import Fairness
from ..core.priority import queue_name
from ..words import percent
from .arguments import limit
from .command import Group, command, option
from .forecast import as_percent
from .output import Columns
from .serialisation import record
from .session import Session
from .simulate import simulate
from .values import count, positive, words
from .weights import weights

_EMPTY = "the ledger is empty; each planned block writes a page of it"


def part(text: str) -> float:
    """Read `0.05` or `5%`."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%?)", text)
    if not found:
        raise ArgumentTypeError(f"invalid part {text!r}: expected a number such as 0.05 or 5%")
    return float(found[1]) / (100 if found[2] else 1)


@command(
    option("--blocks", type=positive, default=100, metavar="N", help="look N blocks back (default: 100)"),
    option("--most-wait", type=count, metavar="N", help="fail if an origin waited more than N blocks"),
    option("--most-late", type=count, metavar="N", help="fail if a backlog was emptied more than N blocks late"),
    option("--most-error", type=part, metavar="PART", help="fail if a share is further off, for example 0.05 or 5%%"),
    option("--least-jain", type=part, metavar="INDEX", help="fail if Jain's index is below INDEX, for example 0.95"),
    example="$ report fairness --blocks 50 --most-wait 3 --most-error 5%",
)
def fairness(session: Session, args: Namespace) -> bool:
    """Show what each origin was promised and received, and how long it waited.

    Shares count in contended blocks: those that left the origin with a backlog, and the one that then emptied it.
    Exit code 1 if a bound is broken.
    """
    with session.queue() as queue:
        found = queue.inspect.fairness(args.blocks)
    bounds = {name: getattr(args, name) for name in ("most_wait", "most_late", "most_error", "least_jain")}
    broken = found.broken(**bounds)
    if session.out.as_json:
        session.out.value(record(found, "longest_wait", "most_late", "most_error", broken=broken))
    elif session.out.items(found.origins if found.blocks else (), _ORIGINS, _EMPTY):
        session.out.remark(_summary(found))
    for sentence in broken:
        session.out.warn(sentence)
    return not broken


_ORIGINS: Columns = {
    "origin": "name", "share>": "share", "contended>": "contended", "promised>": lambda one: percent(one.promised),
    "received>": lambda one: percent(one.received), "error>": lambda one: percent(one.error, "+"),
    "longest wait>": "longest_wait", "waiting>": "waiting", "late>": "late", "got>": lambda one: f"{one.granted:.2f}",
}  # fmt: skip


def _summary(found: Fairness) -> str:
    index = "no origin was left with a backlog" if found.jain is None else f"Jain's index {found.jain:.3f}"
    return (
        f"over {_blocks(found.blocks)}: {index}, the longest wait {_blocks(found.longest_wait)}, "
        f"the largest share error {found.most_error:.1%}; the last column is in blocks"
    )


def _blocks(number: int) -> str:
    return f"{number:,} block{'s' * (number != 1)}"


@command(
    option("--block", type=count, metavar="N", help="only this block"),
    limit(10, "blocks"),
    option("--below", type=words, metavar="ORIGIN", help="what this origin and all below it received, by block"),
    example="$ report ledger --limit 1\n$ report ledger --below acme",
)  # fmt: skip
def ledger(session: Session, args: Namespace) -> None:
    """Show what blocks offered and granted to each queue, and why they stopped there."""
    with session.queue() as queue:
        found = queue.inspect.ledger(block=args.block, limit=args.limit)
    if args.below is not None:
        rows = [(one.block, one.at, *one.below(args.below)) for one in found]
        session.out.value([dict(zip(("block", "at", "messages", "granted"), row)) for row in rows])
        if not session.out.as_json:
            session.out.table(("block>", "at", f"messages of {args.below}>", "granted>"), rows)
        return
    values = [
        {"block": one.block, "at": one.at, "server": one.server, "entries": [_entry(entry) for entry in one.entries]}
        for one in found
    ]
    entries = [(one, entry) for one in found for entry in one.entries]
    if not found or session.out.as_json:
        session.out.items((), {}, _EMPTY, values)
    else:
        session.out.table(
            ("block>", "at", "origin", "messages>", "granted>", "offered>", "kept>", "stopped by"),
            [
                (one.block, one.at, queue_name(entry.origin, entry.priority), entry.messages, entry.granted,
                 as_percent(entry.offered), as_percent(entry.deficit), _stopped_by(entry, one.limit))
                for one, entry in entries
            ],
        )  # fmt: skip


def _entry(entry: Any) -> dict[str, Any]:
    return record(entry, "granted", "needs")


def _stopped_by(entry: Any, limit_of_block: object) -> str:
    """Return why a block stopped at a queue, with the weight of a first message that is heavier than the block."""
    if entry.needs is None:
        return str(entry.reason)
    return f"{entry.reason}: needs {entry.needs}" + (f" of {limit_of_block}" if limit_of_block is not None else "")


REPORT = Group(
    "report", "report fairness, measured weights and the ledger, and simulate other policies",
    (fairness, ledger, weights, simulate), example="$ report fairness",
)  # fmt: skip
