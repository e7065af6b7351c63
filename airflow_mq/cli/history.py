"""`events` and `ledger`: what became of messages, and what blocks did."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..core.events import NAMES, Event
from ..core.priority import queue_name
from .command import Command, option
from .output import shown
from .session import Session
from .values import count, message_id, positive, words

if TYPE_CHECKING:
    from ..queue.values import LedgerBlock


def events(session: Session, args: Namespace) -> None:
    """Print events as they are read; with --follow, without end."""
    seen = False
    with session.queue() as queue:
        stream = queue.inspect.events(
            origin=args.origin, name=args.name, block=args.block, id=args.id, after=args.after, follow=args.follow
        )
        # Counted here, so that who follows stops with the last one and not with the one behind it.
        for event in islice(stream, args.limit):
            seen = True
            if session.out.as_json:
                session.out.value(_plain(event))
            else:
                session.out.line(_line(event))
            if args.follow:
                sys.stdout.flush()
    if not seen:
        session.out.remark("no events here; they come when messages are processed, and are kept for a while")


def _plain(event: Event) -> dict[str, Any]:
    at = None if event.at is None else datetime.fromtimestamp(event.at, timezone.utc)
    return {
        "seq": event.seq, "at": at, "name": event.name, "origin": event.origin, "page": event.page,
        "index": event.index, "priority": event.priority, "id": event.id,
        "weight": event.weight, "success": event.success, "error": event.error,
        "detail": event.detail, "block": event.block,
    }  # fmt: skip


def _line(event: Event) -> str:
    at = "" if event.at is None else shown(datetime.fromtimestamp(event.at, timezone.utc))
    parts = [str(event.seq), at, event.name, str(event.address)]
    if event.weight is not None:
        parts.append(f"weight={event.weight}")
    if event.success is False:
        parts.append("without success")
    parts += [part for part in (event.error, event.detail) if part]
    if event.block is not None:
        parts.append(f"block={event.block}")
    if event.id is not None:
        parts.append(f"id={event.id.hex()[:16]}")
    return "  ".join(parts)


def ledger(session: Session, args: Namespace) -> None:
    """Show what blocks offered and granted."""
    with session.queue() as queue:
        found = queue.inspect.ledger(block=args.block, limit=args.limit)
    if args.below is not None:
        _granted_below(session, args.below, found)
    elif session.out.as_json:
        session.out.value(
            [
                {
                    "block": one.block,
                    "at": one.at,
                    "server": one.server,
                    "entries": [_entry(entry) for entry in one.entries],
                }
                for one in found
            ]
        )
    elif not found:
        session.out.remark("the ledger is empty; each block that is planned writes a page of it")
    else:
        rows = [
            (one.block, one.at, queue_name(entry.origin, entry.priority), entry.messages, str(entry.granted),
             as_percent(entry.offered), as_percent(entry.deficit), _stopped_by(entry, one))
            for one in found for entry in one.entries
        ]  # fmt: skip
        session.out.table(("block>", "at", "origin", "messages>", "granted>", "offered>", "kept>", "stopped by"), rows)


def _granted_below(session: Session, name: str, found: Sequence[LedgerBlock]) -> None:
    rows = [(one.block, one.at, *one.below(name)) for one in found]
    if session.out.as_json:
        names = ("block", "at", "messages", "granted")
        session.out.value([dict(zip(names, row)) for row in rows])
        return
    table = [(block, at, messages, str(granted)) for block, at, messages, granted in rows]
    session.out.table(("block>", "at", f"messages of {name}>", "granted>"), table)


def _entry(entry: Any) -> dict[str, Any]:
    return {**asdict(entry), "granted": entry.granted, "needs": entry.needs}


def _stopped_by(entry: Any, block: LedgerBlock) -> str:
    """Why a block stopped at a queue, and, where its first message is heavier than the block, what that needs."""
    if entry.needs is None:
        return str(entry.reason)
    return f"{entry.reason}: needs {entry.needs}" + (f" of {block.limit}" if block.limit is not None else "")


def as_percent(parts: int) -> str:
    """A deficit, which is counted in parts of a block."""
    from ..core.config import BLOCK_PARTS

    return f"{100 * parts / BLOCK_PARTS:.2f}%"


EVENTS = Command(
    "events", "what became of messages, in order", events,
    (
        option("--origin", type=words, metavar="ORIGIN", help="only those of this origin"),
        option("--name", choices=sorted(set(NAMES.values())), metavar="NAME", help="only of this name, say Processed"),
        option("--block", type=count, metavar="N", help="only those of this block"),
        option("--id", type=message_id, metavar="HEX", help="only those of this message"),
        option("--after", type=count, default=0, metavar="SEQ", help="go on behind this event"),
        option("--limit", type=positive, metavar="N", help="at most so many (default: all)"),
        option("--follow", action="store_true", help="wait for more, until Ctrl-C"),
    ),
    about="With --json one object a line. They are kept as long as the ring's keep_events says.",
    example="$ message events --origin acme --follow --json",
)  # fmt: skip

LEDGER = Command(
    "ledger", "what blocks offered and granted to each queue, and why they stopped there", ledger,
    (
        option("--block", type=count, metavar="N", help="only this block"),
        option("--limit", type=positive, default=10, metavar="N", help="at most so many blocks (default: 10)"),
        option("--below", type=words, metavar="ORIGIN", help="what this origin and all below it got, in one line each"),
    ),
    example="$ report ledger --limit 1\n$ report ledger --below acme",
)  # fmt: skip
