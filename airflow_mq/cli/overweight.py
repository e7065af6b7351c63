"""`overweight`: messages that were set aside and wait for a person."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ..core.judging import REASONS
from ..core.weight import UNLIMITED
from ..words import many
from .command import Command, UsageError, option
from .processors import PROCESSOR, TRACEBACK, load_callable, stdout_kept_clean
from .session import Session
from .values import address, age, positive, weight, words
from .values import count as count_

if TYPE_CHECKING:
    from ..queue import SetAside


def list_set_aside(session: Session, args: Namespace) -> None:
    """List set-aside messages."""
    with session.queue() as queue:
        found = queue.set_aside.list(after=args.after, limit=args.limit + 1, **_wanted(args))
    more, found = len(found) > args.limit, found[: args.limit]
    if session.out.as_json:
        session.out.value([_plain(one) for one in found])
        return
    if not found:
        session.out.remark("no message is set aside; those that can never fit a block, or failed too often, come here")
        return
    session.out.table(
        ("address", "reason", "bytes>", "weight>", "limit>", "age", "arrived>", "block>"),
        [(str(one.address), one.reason, one.size, _weight(one.weight), _limit(one), _age(one.age), one.arrived_block,
          one.block) for one in found],
    )  # fmt: skip
    if more:
        session.out.remark(f"there are more; go on with --after {found[-1].address}")
    session.out.remark(
        "look at one with `airflow-mq message peek`, then `set-aside execute`, `requeue` or `discard` it"
    )


def _plain(one: SetAside) -> dict[str, Any]:
    return {
        "address": one.address, "origin": one.address.origin, "page": one.address.page, "index": one.address.index,
        "priority": one.address.priority, "reason": one.reason, "size": one.size,
        "id": one.id, "weight": one.weight, "limit": one.limit,
        "block": one.block, "at": one.at, "age": one.age, "arrived_at": one.arrived_at,
        "arrived_block": one.arrived_block, "most_bytes": one.most_bytes, "error": one.error or None,
    }  # fmt: skip


def _wanted(args: Namespace) -> dict[str, Any]:
    names = ("origin", "reason", "block", "arrived", "older_than", "error")
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _limit(one: SetAside) -> str | None:
    return _weight(one.limit) if one.most_bytes is None else f"{one.most_bytes:,} bytes"


def _weight(value: Any) -> str | None:
    return None if value is None else str(value)


def _age(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f}{unit}"
    return f"{seconds:.0f}s"


def execute(session: Session, args: Namespace) -> None:
    """Execute one set-aside message by hand."""
    processor = load_callable(args.processor)
    with session.queue() as queue, session.out.progress("executing"), stdout_kept_clean(session):
        used = queue.execute_overweight(args.address, processor, args.limit)
    session.out.value({"address": args.address, "weight": used})
    session.out.remark(f"executed {args.address}; weight {used}")


def judge(session: Session, args: Namespace) -> bool:
    """Judge set-aside messages again."""
    wanted = _chosen(args)
    how = {"limit": args.limit, "weigh": args.weigh, "forget_attempts": args.forget_attempts}
    with session.queue() as queue:
        if args.address:
            result = queue.set_aside.requeue(args.address, args.why, **how)
        else:
            result = queue.set_aside.requeue_all(args.why, **how, **wanted)
    if session.out.as_json:
        moved = [{"address": one.address, "moved": one.moved} for one in result.moved]
        session.out.value({"moved": moved, "stayed": [{"address": s.address, "why": s.why} for s in result.stayed]})
    elif result.moved or result.stayed:
        rows = [(str(one.address), "goes on at", str(one.moved)) for one in result.moved]
        rows += [(str(one.address), "stays", one.why) for one in result.stayed]
        session.out.table(("address", "verdict", ""), rows)
    session.out.remark(f"{len(result.moved):,} fit by now and go back into their queues; {len(result.stayed):,} stay")
    return not result.stayed


def _chosen(args: Namespace) -> dict[str, Any]:
    """Addresses or filters, never both, never neither."""
    wanted = _wanted(args)
    if bool(args.address) == bool(wanted or getattr(args, "all", False)):
        raise UsageError(
            "say which: addresses, or some of --origin, --reason, --block, --arrived, --older-than, --error"
        )
    return wanted


def discard(session: Session, args: Namespace) -> None:
    """Drop set-aside messages."""
    wanted = _chosen(args)
    with session.queue() as queue:
        if args.address:
            count = queue.set_aside.discard(args.address, args.why)
        else:
            count = queue.set_aside.discard_all(args.why, **wanted)
    session.out.value({"discarded": count})
    session.out.remark(f"discarded {many(count, 'message')}")


def expire(session: Session, args: Namespace) -> None:
    """Let go of what the ring's policies say."""
    with session.queue() as queue:
        count, config = queue.set_aside.expire(), queue.config
    session.out.value({"expired": count})
    if config.set_aside_expires is None and not config.discard_unreadable:
        session.out.remark("this ring has no such policy: airflow-mq ring change --set set_aside_expires=2592000")
    else:
        session.out.remark(f"let go of {many(count, 'message')}")


FILTERS = (
    option("--origin", type=words, metavar="ORIGIN", help="only those of this origin"),
    option("--reason", choices=REASONS, metavar="REASON", help=f"only those set aside for this: {', '.join(REASONS)}"),
    option("--block", type=count_, metavar="N", help="only those that this block set aside"),
    option("--arrived", type=count_, metavar="N", help="only those sent before this block, after the one before it"),
    option("--older-than", type=age, metavar="AGE", help="only those sent longer ago: 90s, 15m, 2h, 1d"),
    option("--error", type=words, metavar="TEXT", help="only those tried too often whose last error begins like this"),
)

SET_ASIDE = (
    Command(
        "list", "list the messages that were set aside, and by which limit they were judged", list_set_aside,
        (
            *FILTERS,
            option("--after", type=address, metavar="ADDRESS", help="go on behind this one"),
            option("--limit", type=positive, default=100, metavar="N", help="at most so many (default: 100)"),
        ),
        example="$ set-aside list --origin acme --older-than 7d",
    ),
    Command(
        "requeue", "judge set-aside messages again, by what the ring allows now", judge,
        (
            option("address", type=address, nargs="*", metavar="ADDRESS", help="ORIGIN:PAGE:INDEX"),
            *FILTERS,
            option("--all", action="store_true", help="all but what was swept"),
            option("--why", type=words, default="", metavar="TEXT", help="the reason, kept with the event"),
            option("--limit", type=weight, metavar="TIME/SIZE", help="of a block, in a ring without one"),
            option("--weigh", action="store_true", help="ask the ring's weigher anew"),
            option(
                "--forget-attempts", action="store_true", help="count attempts from zero again (as --error does)"
            ),
        ),
        about="Those that fit by now go back into their queues, behind everything that was sent, as old as they "
        "are. Exit code 1 if any stays.",
        example="$ set-aside requeue --reason size --why 'the limit was raised'\n"
        "$ set-aside requeue --error KeyError --why 'the processor is fixed'",
        rest="address",
    ),
    Command(
        "execute", "process one set-aside message now, by hand", execute,
        (
            option("address", type=address, metavar="ADDRESS", help="ORIGIN:PAGE:INDEX, as `list` prints it"),
            PROCESSOR,
            option("--limit", type=weight, default=UNLIMITED, metavar="TIME/SIZE", help="what it may cost"),
            TRACEBACK,
        ),
        example="$ set-aside execute acme:0:3 --processor orders:process --limit 3600000/10000000000",
    ),
    Command(
        "discard", "drop set-aside messages, for a reason that is recorded", discard,
        (
            option("address", type=address, nargs="*", metavar="ADDRESS", help="ORIGIN:PAGE:INDEX"),
            *FILTERS,
            option("--why", type=words, required=True, metavar="TEXT", help="the reason, kept with the event"),
        ),
        example="$ set-aside discard acme:0:3 acme:0:4 --why 'sent by mistake, ticket 17'",
        rest="address",
    ),
    Command(
        "expire", "let go of what the ring's policies say", expire,
        about="Those are set_aside_expires and discard_unreadable, both off at first; housekeeping does the same.",
        example="$ set-aside expire",
    ),
)  # fmt: skip
