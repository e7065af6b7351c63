"""`footprint`, `order` and `peek`: looking into queues without touching them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..core.blob import extent
from ..core.message import Footprint
from ..core.priority import HIGH, PRIORITIES, REGULAR, queue_name
from .command import Command, UsageError, option
from .output import payload_fields, shown
from .session import Session
from .values import count, positive, words

if TYPE_CHECKING:
    from ..queue import Peeked

HOW_TO_BEGIN = "no messages here; send one: airflow-mq enqueue acme 'an order'"
NOTHING_READY = "nothing is ready; send something: airflow-mq enqueue acme 'an order'"
_COLUMNS = ("origin", "messages>", "bytes>", "pages>", "ready pages>")


def footprint(session: Session, args: Namespace) -> None:
    """Tell how much queues hold."""
    if args.priority and args.origin is None:
        raise UsageError("say whose messages of this priority: airflow-mq queue footprint ORIGIN --priority high")
    if args.below and args.origin is None:
        raise UsageError("say below which origin: airflow-mq queue footprint ORIGIN --below")
    with session.queue() as queue:
        if args.origin is not None:
            found = [(args.origin, queue.footprint(args.origin, args.priority, below=args.below))]
            more = False
        else:
            found = queue.footprints(args.prefix, args.after, args.limit + 1)
            more = len(found) > args.limit
            found = found[: args.limit]
    if session.out.as_json:
        told = [_plain(origin, one) for origin, one in found]
        session.out.value(told[0] if args.origin is not None else told)
        return
    if not any(one.count or one.pages for _, one in found):
        session.out.remark(HOW_TO_BEGIN if args.origin is None and not args.prefix else "no messages here")
    if not found:
        return
    rows = [_row(origin, one) for origin, one in found]
    if len(found) > 1:
        sums = (sum(getattr(one, part) for _, one in found) for part in ("count", "size", "pages", "ready_pages"))
        rows.append((f"{len(found):,} queues", *sums))
    session.out.table(_COLUMNS, rows)
    if more:
        session.out.remark(f"there are more; go on with --after {found[-1][0]}")


def _plain(origin: str, one: Footprint) -> dict[str, Any]:
    return {"origin": origin, **asdict(one)}


def _row(origin: str, one: Footprint) -> tuple[Any, ...]:
    return (origin, one.count, one.size, one.pages, one.ready_pages)


def order(session: Session, args: Namespace) -> None:
    """Show the ready ring from the head on."""
    with session.queue() as queue:
        turns = [(name, HIGH) for name in queue.inspect.ring_order(args.limit, HIGH)]
        turns += [(name, REGULAR) for name in queue.inspect.ring_order(args.limit)]
        paused = {one.origin for one in queue.admin.paused()}
        held = _held(queue)
        found = [(*turn, queue.footprint(*turn)) for turn in turns[: args.limit]]
    notes = {name: "paused" if name in paused else "in flight" if name in held else "" for name, _, _ in found}
    if session.out.as_json:
        session.out.value(
            [{**_plain(name, one), "priority": its, "note": notes[name] or None} for name, its, one in found]
        )
    elif not found:
        session.out.remark(f"the ring is empty: {NOTHING_READY}")
    else:
        rows = [
            (place, *_row(queue_name(name, its), one), notes[name])
            for place, (name, its, one) in enumerate(found, start=1)
        ]
        session.out.table(("turn>", *_COLUMNS, "note"), rows)


def _held(queue: Any) -> set[str]:
    """The origins of which a living block holds something."""
    return {origin for block in queue.blocks.list("planned") for origin in queue.blocks.get(block.token).origins}


def peek(session: Session, args: Namespace) -> None:
    """Look at messages without touching them."""
    with session.queue() as queue:
        found = queue.inspect.peek(args.origin, page=args.page, limit=args.limit)
    if session.out.as_json:
        session.out.value([_message(one) for one in found])
    elif not found:
        session.out.remark(f"no messages of {args.origin} here; send one: airflow-mq enqueue {args.origin} 'an order'")
    else:
        columns = ["address", "state", "bytes>", "attempts>", "message"]
        most = None if args.full else 80
        session.out.table(
            columns,
            [
                (str(one.address), one.state, extent(one.payload), one.attempts, shown(one.payload, most))
                for one in found
            ],
        )


def _message(one: Peeked) -> dict[str, Any]:
    return {
        "address": one.address, "origin": one.address.origin, "page": one.address.page, "index": one.address.index,
        "priority": one.address.priority, **payload_fields(one.payload), "state": one.state,
        "headers": dict(one.headers), "sent_at": one.sent_at,
        "attempts": one.attempts, "weight": one.weight,
    }  # fmt: skip


FOOTPRINT = Command(
    "footprint", "how much queues hold: messages, bytes and pages", footprint,
    (
        option("origin", nargs="?", metavar="ORIGIN", help="only this one (default: all)"),
        option("--priority", choices=PRIORITIES, help="of ORIGIN, only the messages of this priority (default: both)"),
        option("--below", action="store_true", help="ORIGIN together with all below it, as paths go"),
        option("--prefix", type=words, default="", metavar="TEXT", help="only origins that begin with this"),
        option("--after", type=words, default="", metavar="ORIGIN", help="go on behind this origin"),
        option("--limit", type=positive, default=1000, metavar="N", help="at most so many (default: 1000)"),
    ),
    example="$ queue footprint --prefix acme/\n$ queue footprint acme --below",
)  # fmt: skip

ORDER = Command(
    "order", "whose turn it is: the ready queues from the head on", order,
    (option("--limit", type=positive, default=100, metavar="N", help="at most so many (default: 100)"),),
    example="$ queue order --limit 10",
)  # fmt: skip

PEEK = Command(
    "peek", "look at messages without touching them", peek,
    (
        option("origin", metavar="ORIGIN", help="whose messages"),
        option("--page", type=count, metavar="N", help="those of this page, set-aside ones too"),
        option("--limit", type=positive, default=20, metavar="N", help="at most so many (default: 20)"),
        option("--full", action="store_true", help="do not shorten long messages"),
    ),
    example="$ message peek acme --limit 3",
)  # fmt: skip
