"""`overweight`: messages that were set aside and wait for a person."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ..core.weight import UNLIMITED
from .command import Command, Group, option
from .processors import PROCESSOR, TRACEBACK, load_callable, stdout_kept_clean
from .session import Session
from .values import address, positive, weight, words

if TYPE_CHECKING:
    from ..queue import SetAside


def list_set_aside(session: Session, args: Namespace) -> None:
    """List set-aside messages."""
    with session.queue() as queue:
        found = queue.overweight(args.origin, after=args.after, limit=args.limit + 1)
    more, found = len(found) > args.limit, found[: args.limit]
    if session.out.as_json:
        session.out.value([_plain(one) for one in found])
        return
    if not found:
        session.out.remark("no message is set aside; those that can never fit a block, or failed too often, come here")
        return
    session.out.table(
        ("address", "reason", "bytes>", "weight>", "limit>", "age", "block>"),
        [(str(one.address), one.reason, one.size, _weight(one.weight), _weight(one.limit), _age(one.age), one.block)
         for one in found],
    )  # fmt: skip
    if more:
        session.out.remark(f"there are more; go on with --after {found[-1].address}")
    session.out.remark("look at one with `airflow-mq peek`, then `airflow-mq overweight execute` or `discard` it")


def _plain(one: SetAside) -> dict[str, Any]:
    return {
        "address": one.address, "origin": one.address.origin, "page": one.address.page, "index": one.address.index,
        "reason": one.reason, "size": one.size, "id": one.id, "weight": one.weight, "limit": one.limit,
        "block": one.block, "at": one.at, "age": one.age,
    }  # fmt: skip


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
    if session.out.as_json:
        session.out.value({"address": args.address, "weight": used})
    session.out.remark(f"executed {args.address}; weight {used}")


def discard(session: Session, args: Namespace) -> None:
    """Drop set-aside messages."""
    with session.queue() as queue:
        count = queue.discard_overweight(args.address, args.why)
    if session.out.as_json:
        session.out.value({"discarded": count})
    session.out.remark(f"discarded {count:,} message{'' if count == 1 else 's'}")


OVERWEIGHT = Group(
    "overweight",
    "messages that were set aside: list, execute or discard them",
    (
        Command(
            "list", "list the messages that were set aside, and by which limit they were judged", list_set_aside,
            (
                option("--origin", type=words, metavar="ORIGIN", help="only those of this origin"),
                option("--after", type=address, metavar="ADDRESS", help="go on behind this one"),
                option("--limit", type=positive, default=100, metavar="N", help="at most so many (default: 100)"),
            ),
            example="$ overweight list --origin acme",
        ),
        Command(
            "execute", "process one set-aside message now, by hand", execute,
            (
                option("address", type=address, metavar="ADDRESS", help="ORIGIN:PAGE:INDEX, as `list` prints it"),
                PROCESSOR,
                option("--limit", type=weight, default=UNLIMITED, metavar="TIME/SIZE", help="what it may cost"),
                TRACEBACK,
            ),
            example="$ overweight execute acme:0:3 --processor orders:process --limit 3600000/10000000000",
        ),
        Command(
            "discard", "drop set-aside messages, for a reason that is recorded", discard,
            (
                option("address", type=address, nargs="+", metavar="ADDRESS", help="ORIGIN:PAGE:INDEX"),
                option("--why", type=words, required=True, metavar="TEXT", help="the reason, kept with the event"),
            ),
            example="$ overweight discard acme:0:3 acme:0:4 --why 'sent by mistake, ticket 17'",
            rest="address",
        ),
    ),
    example="$ overweight list",
)  # fmt: skip
