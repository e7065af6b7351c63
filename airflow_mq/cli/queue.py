"""`queue`: what queues hold, and decisions about them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ..engine.rules.message import Footprint
from ..engine.rules.nearest import nearest
from ..engine.rules.priority import PRIORITIES
from .arguments import ORIGIN, PRIORITY, count, limit, positive, weight, when, why, words
from .command import Group, UsageError, command, option
from .near import meant, naming_near, question
from .output import Columns
from .serialisation import changes_of, in_words, record
from .session import Session

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue

HOW_TO_BEGIN = "no messages here; send one: airflow-mq enqueue acme 'an order'"
NOTHING_READY = "nothing is ready; send something: airflow-mq enqueue acme 'an order'"
_SETTINGS = ("share", "least", "most", "ordered")
_PARTS = ("count", "size", "pages", "ready_pages")
_COLUMNS = ("origin", "messages>", "bytes>", "pages>", "ready pages>")


@command(
    option("origin ORIGIN", "only this origin (default: all)", nargs="?"),
    option("--priority", "of ORIGIN, only messages of this priority (default: both)", choices=PRIORITIES),
    option("--below", "ORIGIN together with all origins below it, in a ring with paths"),
    option("--prefix TEXT", "only origins that begin with TEXT", words, default=""),
    option("--after ORIGIN", "only origins after this one", words, default=""),
    limit(1000),
    example="$ queue footprint --prefix acme/\n$ queue footprint acme --below",
)
def footprint(session: Session, args: Namespace) -> None:
    """Show how many messages, bytes and pages queues hold."""
    if args.origin is None and args.priority:
        raise UsageError("--priority needs an origin: airflow-mq queue footprint ORIGIN --priority high")
    if args.origin is None and args.below:
        raise UsageError("--below needs an origin: airflow-mq queue footprint ORIGIN --below")
    near = ""
    with session.queue() as queue:
        if args.origin is not None:
            found = [(args.origin, queue.footprint(args.origin, args.priority, below=args.below))]
            near = "" if found[0][1].count or found[0][1].pages else meant(queue, args.origin)
        else:
            found = queue.footprints(args.prefix, args.after, args.limit + 1)
    more, found = len(found) > args.limit, found[: args.limit]
    values = [_plain(*one) for one in found]
    session.out.value(values if args.origin is None else values[0])
    if not any(one.count or one.pages for _, one in found):
        remark = HOW_TO_BEGIN if args.origin is None and not args.prefix else "no messages here"
        session.out.remark(f"{remark}{near}")
    if not found:
        return
    rows = [_row(*one) for one in found]
    if len(found) > 1:
        rows.append((f"{len(found):,} queues", *(sum(getattr(one, part) for _, one in found) for part in _PARTS)))
    session.out.table(_COLUMNS, rows)
    if more:
        session.out.remark(f"there are more; go on with --after {found[-1][0]}")


def _plain(origin: str, one: Footprint) -> dict[str, object]:
    return {"origin": origin, **record(one)}


def _row(origin: str, one: Footprint) -> tuple[object, ...]:
    return (origin, *(getattr(one, part) for part in _PARTS))


_TURNS: Columns = (
    ("turn>", lambda turn: turn[0]),
    ("origin", lambda turn: turn[1].name),
    ("messages>", lambda turn: turn[1].messages),
    ("bytes>", lambda turn: turn[1].size),
    ("in flight>", lambda turn: turn[1].in_flight),
    ("skipped", lambda turn: turn[1].skipped),
)


@command(limit(100), example="$ queue order --limit 10")
def order(session: Session, args: Namespace) -> None:
    """List the ready queues in the order of their turns."""
    with session.queue() as queue:
        found = queue.inspect.ring(args.limit).queues
    session.out.items(list(enumerate(found, start=1)), _TURNS, NOTHING_READY, found)


@command(
    ORIGIN,
    option("--reason TEXT", "the reason, which `queue paused` shows", words, default=""),
    option("--until WHEN", "resume by itself then: 90s, 15m, 2h, 1d or a time with zone", when),
    option("--below", "pause all origins below it, too, also those that come later"),
    example="$ queue pause acme --reason 'their API is down' --until 2h\n$ queue pause acme --below",
)
def pause(session: Session, args: Namespace) -> None:
    """Skip an origin when servicing; enqueuing goes on.

    A block in flight is not stopped. Groups are paused in rings with paths: ring change --set paths=true.
    """
    with session.queue() as queue:
        queue.admin.pause(args.origin, args.reason, args.until, below=args.below)
        near = "" if args.below else meant(queue, args.origin)
    what = f"{args.origin} and all below it" if args.below else args.origin
    session.out.answer(
        {"paused": args.origin, "below": args.below},
        f"paused {what}; enqueuing goes on; to resume: airflow-mq queue resume {args.origin}",
    )
    if near:
        session.out.remark(f"{args.origin} has no messages{near}")


@command(ORIGIN, example="$ queue resume acme")
def resume(session: Session, args: Namespace) -> bool:
    """Service a paused origin again.

    Resumes a group that was paused with all below it, too. Exit code 1 if it was not paused.
    """
    with session.queue() as queue:
        was_paused = queue.admin.resume(args.origin)
        near = "" if was_paused else _near_paused(queue, args.origin)
    session.out.answer(
        {"origin": args.origin, "was_paused": was_paused},
        f"resumed {args.origin}" if was_paused else f"{args.origin} was not paused{near}",
    )
    return was_paused


def _near_paused(queue: MessageQueue, name: str) -> str:
    return question(nearest(name, [one.origin for one in queue.admin.paused()]))


_PAUSED: Columns = (
    "origin",
    ("all below", lambda one: "yes" if one.below else ""),
    "reason",
    "actor",
    "since",
    "until",
)


@command(example="$ queue paused")
def paused(session: Session, args: Namespace) -> None:
    """List the paused origins, with time, actor and reason."""
    with session.queue() as queue:
        session.out.items(queue.admin.paused(), _PAUSED, "nothing is paused")


@command(ORIGIN, example="$ queue sweep acme")
def sweep(session: Session, args: Namespace) -> None:
    """Set aside all waiting messages of a queue.

    Nothing is deleted: the messages stay until they are executed or discarded.
    """
    with session.queue() as queue:
        left = queue.sweep_queue(args.origin)
        near = "" if left else meant(queue, args.origin)
    session.out.answer(
        {"origin": args.origin, "set_aside": left},
        f"swept {args.origin}: {left:,} messages are set aside; see `airflow-mq set-aside list`"
        if left
        else f"{args.origin} has nothing to sweep{near}",
    )


@command(ORIGIN, option("page PAGE", "the number of the page", count), PRIORITY, why(), example="$ queue reap acme 17")
def reap(session: Session, args: Namespace) -> None:
    """Remove an old page, with the set-aside messages on it.

    Rejected (exit code 3) while the page is needed.
    """
    with session.queue() as queue, naming_near(queue, [args.origin]):
        queue.reap_page(args.origin, args.page, args.why, priority=args.priority)
    session.out.answer({"origin": args.origin, "page": args.page}, f"reaped page {args.page} of {args.origin}")


@command(ORIGIN, PRIORITY, name="set-head", example="$ queue set-head acme")
def set_head(session: Session, args: Namespace) -> bool:
    """Service a queue next.

    Exit code 1 if the queue has nothing ready.
    """
    with session.queue() as queue:
        is_head = bool(queue.admin.force_set_head(args.origin, priority=args.priority))
        near = "" if is_head else meant(queue, args.origin)
    session.out.answer(
        {"origin": args.origin, "is_head": is_head},
        f"{args.origin} is next" if is_head else f"{args.origin} has nothing ready: it cannot be next{near}",
    )
    return is_head


@command(
    ORIGIN,
    option("--share N", "earn N times as much as other origins", positive),
    option("--least TIME/SIZE", "get at least this of each block", weight),
    option("--most TIME/SIZE", "get at most this of each block", weight),
    option("--ordered", "process its messages one after the other", default=None),
    option("--relaxed", "process its messages in parallel", action="store_false", dest="ordered", default=None),
    option("--unset NAME", "use the ring's setting for NAME; may be repeated", choices=_SETTINGS, action="append"),
    option("--defaults", "use the ring's settings for all"),
    name="set",
    example="$ queue set acme --share 4 --most 300000/500000000\n$ queue set acme --unset most",
)
def set_origin(session: Session, args: Namespace) -> None:
    """Change how an origin is serviced, from the next block on.

    Omitted settings stay. In a ring with paths, share, least and most are those of the whole group of this name.
    """
    settings = {name: getattr(args, name) for name in _SETTINGS}
    unset = _SETTINGS if args.defaults else args.unset or ()
    is_any = any(value is not None for value in settings.values())
    if args.defaults and (is_any or args.unset):
        raise UsageError("--defaults unsets every setting: use it alone")
    if not is_any and not unset:
        raise UsageError("no setting: expected --share, --least, --most, --ordered, --relaxed, --unset or --defaults")
    with session.queue() as queue:
        changed = queue.admin.set_origin(args.origin, **settings, unset=unset)
    session.out.answer({"origin": args.origin, "changed": changes_of(changed)}, f"{args.origin}: {in_words(changed)}")


@command(ORIGIN, example="$ queue show acme")
def show(session: Session, args: Namespace) -> None:
    """Show how an origin is serviced."""
    with session.queue() as queue:
        found = queue.inspect.origin_settings(args.origin)
    ordered = "one after the other" if found.ordered else "in parallel"
    pairs = {"origin": args.origin, "share": found.share, "least": found.least, "most": found.most, "messages": ordered}
    session.out.fields(pairs, {"origin": args.origin, **record(found)})


QUEUE = Group(
    "queue",
    "show, pause, sweep and configure queues",
    (footprint, order, show, set_origin, pause, resume, paused, sweep, reap, set_head),
    example="$ queue footprint\n$ queue pause acme --reason 'their API is down'",
)
