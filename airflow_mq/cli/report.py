"""`report`: fairness, the ledger, usage and bills."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentTypeError, Namespace
from calendar import monthrange
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING

from ..engine.rules.characters import quoted
from ..engine.rules.charging import BY, PER
from ..engine.rules.fairness import Fairness
from ..engine.rules.priority import queue_name
from ..sheets import USAGE, Columns, sheet
from ..tariff import Tariff
from ..words import many, percent, span
from .arguments import count, day, json_object, limit, positive, words
from .command import Group, command, option
from .serialisation import as_percent, picked, record
from .session import Session

if TYPE_CHECKING:
    from ..engine.queue.values import LedgerBlock
    from ..engine.rules.orders import Entry

_EMPTY = "the ledger is empty; each planned block writes a page of it"


def part(text: str) -> float:
    """Read `0.05` or `5%`."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%?)", text)
    if not found:
        raise ArgumentTypeError(f"invalid part {text!r}: expected a number such as 0.05 or 5%")
    return float(found[1]) / (100 if found[2] else 1)


@command(
    option("--blocks N", "use the latest N blocks (default: 100)", positive, default=100),
    option("--most-wait N", "fail if an origin waited more than N blocks", count),
    option("--most-late N", "fail if a queue was emptied more than N blocks late", count),
    option("--most-error PART", "fail if received and promised differ by more, for example 0.05 or 5%%", part),
    option("--least-jain INDEX", "fail if Jain's index is below INDEX, for example 0.95", part),
    example="$ report fairness --blocks 50 --most-wait 3 --most-error 5%",
)
def fairness(session: Session, args: Namespace) -> bool:
    """Compare what each origin received with its fair share, and show how long it waited.

    Shares count in contended blocks: those that left messages of the origin waiting for lack of capacity, and the one
    that then emptied its queue. Exit code 1 if a bound is broken.
    """
    with session.queue() as queue:
        found = queue.inspect.fairness(args.blocks)
    bounds = {name: getattr(args, name) for name in ("most_wait", "most_late", "most_error", "least_jain")}
    broken = found.broken(**bounds)
    if session.out.as_json:
        session.out.value(record(found, "longest_wait", "most_late", "most_error", broken=broken))
    elif session.out.items(found.origins if found.blocks else (), _ORIGINS, _EMPTY):
        session.out.remark(_summary(found))
        for heading, meaning in _MEANINGS.items():
            session.out.remark(f"  {heading:<12}  {meaning}")
    for sentence in broken:
        session.out.warn(sentence)
    return not broken


_ORIGINS: Columns = (
    ("origin", "name"),
    "share>",
    "contended>",
    ("promised>", lambda one: percent(one.promised)),
    ("received>", lambda one: percent(one.received)),
    ("error>", lambda one: percent(one.error, "+")),
    "longest wait>",
    "waiting>",
    "late>",
    ("got>", lambda one: f"{one.granted:.2f}"),
)


#: What the columns mean, printed below them.
_MEANINGS = {
    "share": "weight relative to the others, as `queue set --share` sets it",
    "contended": "blocks that left its messages waiting for lack of capacity, and the one that then emptied its queue",
    "promised": "its fair share of the contended blocks, by share, least and most, and by what the others needed",
    "received": "the part of the contended blocks that it used",
    "error": "received compared with promised: -50% means half of its fair share",
    "longest wait": "most consecutive blocks that started none of its waiting messages",
    "waiting": "number of such blocks up to now",
    "late": "how many blocks later its queue was emptied than if each block had given it its fair share",
    "got": "everything that it used in all blocks, in full blocks",
}


def _summary(found: Fairness) -> str:
    index = "no block was contended" if found.jain is None else f"Jain's index {found.jain:.3f}"
    return (
        f"over {many(found.blocks, 'block')}: {index}, the longest wait {many(found.longest_wait, 'block')}, "
        f"the largest share error {found.most_error:.1%}"
        + ("; more queues wait than this report includes, so `promised` is an upper bound" if found.partial else "")
    )


@command(
    option("--block N", "only this block", count),
    limit(10, "blocks"),
    option("--origin ORIGIN", "what this origin, with all below it, received, by block", words),
    example="$ report ledger --limit 1\n$ report ledger --origin acme",
)
def ledger(session: Session, args: Namespace) -> None:
    """Show what blocks offered and granted to each queue, and why they stopped there."""
    with session.queue() as queue:
        found = queue.inspect.ledger(block=args.block, limit=args.limit)
    if args.origin is not None:
        rows = [(one.block, one.at, *one.below(args.origin)) for one in found]
        session.out.value([dict(zip(("block", "at", "messages", "granted"), row)) for row in rows])
        session.out.table(("block>", "at", f"messages of {args.origin}>", "granted>"), rows)
        return
    entries = [(page, entry) for page in found for entry in page.entries]
    empty = "these blocks offered nothing to any queue" if found else _EMPTY
    if session.out.items(entries, _LEDGER, empty, map(_page, found)):
        for page in found:
            for reason, names in page.skipped.items():
                session.out.remark(f"block {page.block} skipped {many(len(names), 'more queue')}: {reason}")
            for reason, groups in page.halted.items():
                named = ", ".join(map(quoted, groups))
                session.out.remark(f"block {page.block} skipped {named} and all below it: {reason}")


def _page(page: LedgerBlock) -> dict[str, object]:
    entries = [record(entry, "granted", "needs") for entry in page.entries]
    skipped = {reason: len(names) for reason, names in page.skipped.items()}
    return picked(page, "block at server halted", entries=entries, skipped=skipped)


def _stopped_by(page: LedgerBlock, entry: Entry) -> str:
    """Return why a block stopped at a queue, with the weight of a first message that is heavier than the block."""
    if entry.needs is None:
        return str(entry.reason)
    return f"{entry.reason}: needs {entry.needs}" + (f" of {page.limit}" if page.limit is not None else "")


_LEDGER: Columns = (
    ("block>", lambda row: row[0].block),
    ("at", lambda row: row[0].at),
    ("origin", lambda row: queue_name(row[1].origin, row[1].priority)),
    ("messages>", lambda row: row[1].messages),
    ("granted>", lambda row: row[1].granted),
    ("offered>", lambda row: as_percent(row[1].offered)),
    ("kept>", lambda row: as_percent(row[1].deficit)),
    ("stopped by", lambda row: _stopped_by(*row)),
)


@command(
    option(
        "--by NAME", "sum by origin, by the first part of its path, by processor or by DAG", choices=BY, default=BY[0]
    ),
    option("--per PERIOD", "sum by day or by month of UTC", choices=tuple(PER), default="day"),
    option("--since DAY", "from this day or month of UTC on (default: this month)", day),
    option("--until DAY", "to before this day or month of UTC", day),
    option("--of ORIGIN", "only this origin and all below it; with --by path, sum by the next part", words),
    option("--tariff FILE", "add costs, by a JSON file of dated prices"),
    option("--csv", "print CSV for a spreadsheet"),
    example="$ report usage --by path --per month --since 2026-11\n$ report usage --of acme --csv",
)
def usage(session: Session, args: Namespace) -> None:
    """Show what was charged to origins, paths, processors or DAGs, by day or month.

    Each attempt that counts is charged the weigher's prediction or the reported use, whichever is larger.
    """
    tariff = None if args.tariff is None else Tariff.from_json(json_object(args.tariff))
    since = args.since or datetime.now(timezone.utc).date().replace(day=1)
    with session.queue() as queue:
        found = queue.inspect.usage(args.by, args.per, since=since, until=args.until, of=args.of, tariff=tariff)
    if args.csv:
        sys.stdout.writelines(sheet(USAGE, found))
        return
    columns: Columns = (*_USAGE, ("cost>", lambda one: f"{one.cost} {one.currency}")) if tariff else _USAGE
    session.out.items(found, columns, "nothing was charged in this time")


_USAGE: Columns = (
    "period",
    "name",
    "messages>",
    ("bytes>", "size"),
    "attempts>",
    "set aside>",
    "planned>",
    "charged>",
    ("measured>", lambda one: span(one.measured)),
)


@command(
    option("--of TENANT", "the first part of the tenant's origins, or its origin without paths", words, required=True),
    option("--month MONTH", "a month of UTC, such as 2026-11", day, required=True),
    example="$ report bill --of acme --month 2026-11 > bill.json",
)
def bill(session: Session, args: Namespace) -> None:
    """Print the bill of a tenant for the closed days of a month, as JSON that `verify` checks without a store."""
    with session.queue() as queue:
        found = queue.inspect.bill(args.of, args.month)
    sys.stdout.write(json.dumps(found) + "\n")
    if not found["days"]:
        session.out.warn(f"no day of it has a charge of {args.of}: a tenant is the first part of a path, or an origin")
    last = date.fromisoformat(found["headers"][-1]["day"])
    if last.day < monthrange(last.year, last.month)[1]:
        session.out.warn(f"the bill ends with {last}: later days of this month are not closed, and not in it")


@command(
    option("--month MONTH", "only this month of UTC, such as 2026-11", day),
    example="$ report headers --month 2026-11",
)
def headers(session: Session, args: Namespace) -> None:
    """Show the headers of closed days. Publish them, so that tenants can prove their bills by them."""
    with session.queue() as queue:
        found = queue.inspect.bill_headers(args.month)
    session.out.items([{"day": one.day, "header": one.hash.hex(), "leaves": one.leaves} for one in found], (
        ("day", lambda one: one["day"]), ("leaves>", lambda one: one["leaves"]), ("header", lambda one: one["header"]),
    ), f"no day is closed; `{queue.session.cli('ring housekeep')}` closes days that are over")  # fmt: skip


REPORT = Group(
    "report",
    "report fairness, the ledger, usage and bills",
    (fairness, ledger, usage, bill, headers),
    example="$ report fairness",
)
