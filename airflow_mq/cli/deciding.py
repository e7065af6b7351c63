"""`pause`, `resume`, `paused`, `reap`, `sweep`, `head`, `origin`: what people decide about queues."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from ..core.priority import PRIORITIES, REGULAR
from .command import Command, UsageError, option
from .session import Session
from .values import count, positive, weight, when, words

_ORIGIN = option("origin", metavar="ORIGIN", help="whose queue")
_PRIORITY = option("--priority", choices=PRIORITIES, default=REGULAR, help="of which messages (default: regular)")


def pause(session: Session, args: Namespace) -> None:
    """Let servicing pass an origin by."""
    with session.queue() as queue:
        queue.admin.pause(args.origin, args.reason, args.until, below=args.below)
    session.out.value({"paused": args.origin, "below": args.below})
    what = f"{args.origin} and all below it" if args.below else args.origin
    session.out.remark(f"paused {what}; messages are still taken; `airflow-mq queue resume {args.origin}` ends it")


def resume(session: Session, args: Namespace) -> bool:
    """Service an origin again."""
    with session.queue() as queue:
        was_paused = queue.admin.resume(args.origin)
    session.out.value({"origin": args.origin, "was_paused": was_paused})
    session.out.remark(f"resumed {args.origin}" if was_paused else f"{args.origin} was not paused")
    return was_paused


def paused(session: Session, args: Namespace) -> None:
    """List what is paused."""
    with session.queue() as queue:
        found = queue.admin.paused()
    if session.out.as_json:
        session.out.value([asdict(one) for one in found])
    elif not found:
        session.out.remark("nothing is paused")
    else:
        rows = [(one.origin, "yes" if one.below else "", one.reason, one.who, one.since, one.until) for one in found]
        session.out.table(("origin", "all below", "reason", "who", "since", "until"), rows)


def reap(session: Session, args: Namespace) -> None:
    """Remove an old page."""
    with session.queue() as queue:
        queue.reap_page(args.origin, args.page, args.why, priority=args.priority)
    session.out.value({"origin": args.origin, "page": args.page})
    session.out.remark(f"reaped page {args.page} of {args.origin}")


def sweep(session: Session, args: Namespace) -> None:
    """Put aside everything that waits."""
    with session.queue() as queue:
        left = queue.sweep_queue(args.origin)
    session.out.value({"origin": args.origin, "set_aside": left})
    session.out.remark(
        f"swept {args.origin}: {left:,} messages wait for a person now; see `airflow-mq set-aside list`"
        if left
        else f"{args.origin} has nothing to sweep"
    )


def head(session: Session, args: Namespace) -> bool:
    """Make an origin the head."""
    with session.queue() as queue:
        is_head = bool(queue.admin.force_set_head(args.origin, priority=args.priority))
    session.out.value({"origin": args.origin, "is_head": is_head})
    session.out.remark(f"{args.origin} is next" if is_head else f"{args.origin} has nothing ready: it cannot be next")
    return is_head


def set_origin(session: Session, args: Namespace) -> None:
    """Say how an origin is served."""
    said = {"share": args.share, "least": args.least, "most": args.most, "ordered": args.ordered}
    if args.defaults == any(value is not None for value in said.values()):
        raise UsageError("say --share, --least, --most, --ordered or --relaxed, or --defaults for none of them")
    with session.queue() as queue:
        queue.admin.set_origin(args.origin, **said)
    session.out.value({"origin": args.origin, **said})
    session.out.remark(f"{args.origin} is set, from the next block on")


def show_origin(session: Session, args: Namespace) -> None:
    """Tell how an origin is served."""
    with session.queue() as queue:
        found = queue.inspect.origin_settings(args.origin)
    if session.out.as_json:
        session.out.value({"origin": args.origin, **asdict(found)})
        return
    session.out.fields({
        "origin": args.origin, "share": found.share, "least": found.least or "-", "most": found.most or "-",
        "messages": "one after the other" if found.ordered else "at once",
    })  # fmt: skip


PAUSE = Command(
    "pause", "let servicing pass an origin by; enqueuing goes on", pause,
    (
        _ORIGIN,
        option("--reason", type=words, default="", metavar="TEXT", help="shown by `queue paused`"),
        option("--until", type=when, metavar="WHEN", help="resumes by itself: 90s, 15m, 2h, 1d or a time with zone"),
        option("--below", action="store_true", help="with all below it, as paths go; also what comes later"),
    ),
    about="A block in flight is not stopped. Groups are paused in rings with paths: ring change --set paths=true.",
    example="$ queue pause acme --reason 'their API is down' --until 2h\n$ queue pause acme --below",
)  # fmt: skip

RESUME = Command(
    "resume", "service a paused origin again", resume, (_ORIGIN,),
    about="Also a group that was paused with all below it. Exit code 1 if it was not paused.",
    example="$ queue resume acme",
)  # fmt: skip

PAUSED = Command("paused", "list what is paused, since when, by whom and why", paused, example="$ queue paused")

REAP = Command(
    "reap", "remove an old page, with what it still holds", reap,
    (
        _ORIGIN,
        option("page", type=count, metavar="PAGE", help="its number"),
        _PRIORITY,
        option("--why", type=words, default="", metavar="TEXT", help="a reason, kept with the event"),
    ),
    about="Refused (exit code 3) while the page is still needed.",
    example="$ queue reap acme 17",
)  # fmt: skip

SWEEP = Command(
    "sweep", "put aside everything that waits in a queue", sweep, (_ORIGIN,),
    about="Nothing is lost: the messages stay until somebody executes or discards them.",
    example="$ queue sweep acme",
)  # fmt: skip

HEAD = Command(
    "set-head", "make an origin the next to be serviced", head, (_ORIGIN, _PRIORITY),
    about="Exit code 1 if it has nothing ready.",
    example="$ queue set-head acme",
)  # fmt: skip

SETTINGS = (
    Command(
        "set", "say how an origin is served", set_origin,
        (
            _ORIGIN,
            option("--share", type=positive, metavar="N", help="earns so many times as much as others"),
            option("--least", type=weight, metavar="TIME/SIZE", help="gets at least this of a block"),
            option("--most", type=weight, metavar="TIME/SIZE", help="gets at most this of a block"),
            option("--ordered", action="store_true", default=None, help="its messages one after the other"),
            option("--relaxed", action="store_false", dest="ordered", default=None, help="its messages at once"),
            option("--defaults", action="store_true", help="like every other origin of the ring"),
        ),
        about="Say everything at once: what is not said goes back to the ring's default. In a ring with paths, a "
        "share, a least and a most are of the whole group of this name.",
        example="$ queue set acme --share 4 --most 300000/500000000",
    ),
    Command(
        "show", "tell how an origin is served", show_origin, (_ORIGIN,),
        about="What is not set for it is as the ring says.",
        example="$ queue show acme",
    ),
)  # fmt: skip
