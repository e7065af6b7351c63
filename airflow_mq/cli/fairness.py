"""`fairness`: who got what, and who waited."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from dataclasses import asdict
from typing import Any

from ..core.fairness import Fairness
from .command import Command, option
from .session import Session
from .values import count, positive


def fairness(session: Session, args: Namespace) -> bool:
    """Tell what each origin was promised and got."""
    with session.queue() as queue:
        told = queue.inspect.fairness(args.blocks)
    broken = told.broken(
        most_wait=args.most_wait, most_late=args.most_late, most_error=args.most_error, least_jain=args.least_jain
    )
    if session.out.as_json:
        session.out.value({**plain(told), "broken": broken})
    elif not told.blocks:
        session.out.remark("the ledger is empty; each block that is planned writes a page of it")
    else:
        session.out.table(COLUMNS, rows(told))
        session.out.remark(summary(told))
    for sentence in broken:
        session.out.warn(sentence)
    return not broken


COLUMNS = ("origin", "share>", "contended>", "promised>", "received>", "error>", "longest wait>", "waiting>", "late>",
           "got>")  # fmt: skip


def rows(told: Fairness) -> list[tuple[Any, ...]]:
    """A line for each origin."""
    return [
        (one.name, one.share, one.contended, percent(one.promised), percent(one.received), percent(one.error, "+"),
         one.longest_wait, one.waiting, one.late, f"{one.granted:.2f}")
        for one in told.origins
    ]  # fmt: skip


def summary(told: Fairness) -> str:
    """All of it in a line."""
    index = "nobody was left wanting" if told.jain is None else f"Jain's index {told.jain:.3f}"
    return (
        f"over {blocks_of(told.blocks)}: {index}, the longest wait {blocks_of(told.longest_wait)}, "
        f"the largest share error {told.most_error:.1%}; what was got is told in blocks"
    )


def plain(told: Fairness) -> dict[str, Any]:
    """The same in JSON's terms."""
    return {
        "blocks": told.blocks, "jain": told.jain, "longest_wait": told.longest_wait, "most_late": told.most_late,
        "most_error": told.most_error,
        "origins": [asdict(one) for one in told.origins],
    }  # fmt: skip


def blocks_of(count: int) -> str:
    """A number of blocks."""
    return f"{count:,} block{'s' * (count != 1)}"


def percent(part: float | None, sign: str = "") -> str | None:
    """A part as people write it."""
    return None if part is None else f"{part:{sign}.1%}"


def part(text: str) -> float:
    """`0.05` or `5%`."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%?)", text)
    if not found:
        raise ArgumentTypeError(f"a part reads 0.05 or 5%, not {text!r}")
    return float(found[1]) / (100 if found[2] else 1)


FAIRNESS = Command(
    "fairness", "what each origin was promised and got, and how long it waited", fairness,
    (
        option("--blocks", type=positive, default=100, metavar="N", help="look back so many blocks (default: 100)"),
        option("--most-wait", type=count, metavar="N", help="broken, if an origin waited more blocks than this"),
        option("--most-late", type=count, metavar="N", help="broken, if a backlog was emptied later by more blocks"),
        option("--most-error", type=part, metavar="PART", help="broken, if a share is further off, say 0.05 or 5%%"),
        option("--least-jain", type=part, metavar="INDEX", help="broken, if Jain's index is below, say 0.95"),
    ),
    about="Shares count in contended blocks: those that left the origin wanting, and the one that emptied it then. "
    "Exit code 1 if fairness is broken.",
    example="$ report fairness --blocks 50 --most-wait 3 --most-error 5%",
)  # fmt: skip
