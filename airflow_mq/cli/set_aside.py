"""`set-aside`: messages kept for manual handling."""

from __future__ import annotations

import shlex
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ..engine.rules.filters import FILTERS
from ..engine.rules.judging import REASONS
from ..engine.rules.weight import UNLIMITED
from ..sheets import Columns
from ..words import many, span
from .arguments import ADDRESSES, PROCESSOR, TRACEBACK, address, age, count, limit, weight, why, words
from .command import Group, UsageError, command, option
from .near import meant, naming_near
from .serialisation import address_fields, record
from .service import load_callable, stdout_kept_clean
from .session import Session

if TYPE_CHECKING:
    from ..engine.queue.values import SetAside

_READERS = {"N": count, "AGE": age}
_FILTERS = [
    option(
        f"--{name.replace('_', '-')} {value}",
        f"only messages {selected}",
        _READERS.get(value, words),
        choices=REASONS if name == "reason" else None,
    )
    for name, (value, selected) in FILTERS.items()
]


@command(
    *_FILTERS,
    option("--after ADDRESS", "only messages after this one", address),
    limit(100),
    name="list",
    example="$ set-aside list --origin acme --older-than 7d",
)
def list_set_aside(session: Session, args: Namespace) -> None:
    """List the set-aside messages, and the limits they were judged by."""
    with session.queue() as queue:
        found = queue.set_aside.list(after=args.after, limit=args.limit + 1, errors=True, **_filters(args))
        near = "" if found else meant(queue, args.origin)
    more, found = len(found) > args.limit, found[: args.limit]
    empty = f"no message is set aside; messages that can never fit a block, or failed too often, are kept here{near}"
    columns = [*_COLUMNS, *[("last error", "error")] * any(one.error for one in found)]
    if not session.out.items(found, columns, empty, map(_plain, found)):
        return
    if more:
        session.out.remark(f"there are more: continue with --after={shlex.quote(str(found[-1].address))}")
    session.out.remark(f"what happened to one: {queue.session.cli('message history ADDRESS')}")
    session.out.remark("to decide: airflow-mq set-aside requeue, execute or discard, each with --help")


def _plain(one: SetAside) -> dict[str, object]:
    return {**address_fields(one.address), **record(one, error=one.error or None)}


def _filters(args: Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in FILTERS if getattr(args, name) is not None}


_COLUMNS: Columns = (
    "address",
    "reason",
    ("bytes>", "size"),
    "weight>",
    ("limit>", lambda one: one.limit if one.most_bytes is None else f"{one.most_bytes:,} bytes"),
    ("age", lambda one: None if one.age is None else span(one.age)),
    ("arrived>", "arrived_block"),
    "block>",
)


@command(
    option("address ADDRESS", "ORIGIN:PAGE:INDEX, as `set-aside list` prints it", address),
    PROCESSOR,
    option("--service-weight TIME/SIZE", "the weight it may use (default: no limit)", weight, default=UNLIMITED),
    TRACEBACK,
    example="$ set-aside execute acme:0:3 --processor orders:process --service-weight 1h/10GB",
)
def execute(session: Session, args: Namespace) -> None:
    """Process one set-aside message now."""
    processor = load_callable(args.processor)
    with (
        session.queue() as queue,
        naming_near(queue, [args.address.origin]),
        session.out.progress("executing"),
        stdout_kept_clean(session),
    ):
        used = queue.execute_overweight(args.address, processor, args.service_weight)
    session.out.answer({"address": args.address, "weight": used}, f"executed {args.address}; weight {used}")


@command(
    ADDRESSES,
    *_FILTERS,
    option("--all", "all messages but those that were swept"),
    why(),
    option("--service-weight TIME/SIZE", "the limit of the next blocks, if blocks judge by their own limits", weight),
    option("--weigh", "ask the ring's weigher again"),
    option("--forget-attempts", "count attempts from zero (as --error does)"),
    example="$ set-aside requeue --reason size --why 'the limit was raised'\n"
    "$ set-aside requeue --error KeyError --why 'the processor is fixed'",
    rest="address",
)
def requeue(session: Session, args: Namespace) -> bool:
    """Requeue set-aside messages that the limits of blocks allow now.

    A message joins the end of its queue and keeps its age. Exit code 1 if any message stays set aside.
    """
    filters = _chosen(args)
    how = {"limit": args.service_weight, "weigh": args.weigh, "forget_attempts": args.forget_attempts}
    with session.queue() as queue, naming_near(queue, _origins(args)):
        if args.address:
            result = queue.set_aside.requeue(args.address, args.why, **how)
        else:
            result = queue.set_aside.requeue_all(args.why, **how, **filters)
        is_none = not (result.moved or result.stayed or result.exclusions())
        near = meant(queue, args.origin) if is_none else ""
        by_latest = queue.config.judges_by_block and args.service_weight is None
    moved = [{"address": one.address, "moved": one.moved} for one in result.moved]
    stayed = [{"address": judged.address, "why": judged.why} for judged in result.stayed]
    session.out.value({"moved": moved, "stayed": stayed, "excluded": result.exclusions()})
    if moved or stayed:
        rows = [(one.address, "requeued at", str(one.moved)) for one in result.moved]
        rows += [(one.address, "stays", one.why) for one in result.stayed]
        session.out.table(("address", "verdict", ""), rows)
    session.out.remark(f"{len(result.moved):,} requeued; {len(result.stayed):,} still set aside{near}")
    if any(one.why.startswith("it was tried") for one in result.stayed):
        session.out.remark("to retry the messages that were tried too often, add --forget-attempts")
    if by_latest and any(one.why.startswith("it weighs") for one in result.stayed):
        session.out.remark(
            "the limits are those of the latest blocks; if the next ones have more, add --service-weight"
        )
    for sentence in result.exclusions():
        session.out.remark(sentence)
    return not (result.stayed or result.swept)


def _origins(args: Namespace) -> list[str]:
    return [one.origin for one in args.address or ()]


def _chosen(args: Namespace) -> dict[str, Any]:
    """Return the filters. Addresses, filters and --all exclude each other, and nothing never means everything."""
    filters = _filters(args)
    if [bool(args.address), bool(filters), getattr(args, "all", False)].count(True) != 1:
        raise UsageError(
            f"specify either addresses, or some of {', '.join(one.flags[0] for one in _FILTERS)}"
            + (", or --all" if hasattr(args, "all") else "")
        )
    return filters


@command(
    ADDRESSES,
    *_FILTERS,
    why(required=True),
    rest="address",
    example="$ set-aside discard acme:0:3 acme:0:4 --why 'sent by mistake, ticket 17'",
)
def discard(session: Session, args: Namespace) -> None:
    """Delete set-aside messages, with a recorded reason."""
    filters = _chosen(args)
    with session.queue() as queue, naming_near(queue, _origins(args)):
        if args.address:
            number = queue.set_aside.discard(args.address, args.why)
        else:
            number = queue.set_aside.discard_all(args.why, **filters)
        near = "" if number else meant(queue, args.origin)
    session.out.answer({"discarded": number}, f"discarded {many(number, 'message')}{near}")


SET_ASIDE = Group(
    "set-aside",
    "list, requeue, execute and discard set-aside messages",
    (list_set_aside, requeue, execute, discard),
    example="$ set-aside list",
)
