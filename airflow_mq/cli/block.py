"""`block`: planned blocks, and the next ones."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from ..core.priority import queue_name
from .arguments import limit
from .class_archive import class_archive
from .command import Group, command, option
from .forecast import dry_run, forecast
from .output import Columns
from .serialisation import record
from .service import summary
from .session import Session, store_now
from .values import words

if TYPE_CHECKING:
    from ..queue import Block

_STATES = ("planned", "settled", "released")
_EMPTY = "no blocks here; each DAG run with block() plans one, and so does MessageQueue.blocks.plan"


@command(
    option("--state", "only blocks in this state (default: all)", choices=_STATES),
    limit(100),
    name="list",
    example="$ block list --state planned",
)
def list_blocks(session: Session, args: Namespace) -> None:
    """List blocks, the latest first."""
    with session.queue() as queue:
        found, now = queue.blocks.list(args.state, args.limit), store_now(queue)
    columns: Columns = (
        ("block>", "id"),
        ("state", lambda block: block.state_at(now)),
        "key",
        "messages>",
        "planned>",
        "limit>",
        "deadline",
        "token",
    )
    session.out.items(found, columns, _EMPTY, [_plain(one, now) for one in found])


_TOKEN = option("token TOKEN", "the block's token, as `block list` prints it", words)


@command(_TOKEN, example="$ block show 0f3a…")
def show(session: Session, args: Namespace) -> None:
    """Show one block and its claimed messages."""
    with session.queue() as queue:
        block, now = queue.blocks.get(args.token), store_now(queue)
    names = ("origin", "priority", "messages", "planned")
    claims = [(claim.whose, claim.priority, claim.messages, claim.planned) for claim in block.claims]
    pairs = {"block": block.id, "state": block.state_at(now)}
    pairs |= {name: getattr(block, name) for name in ("key", "messages", "planned", "overhead", "limit", "deadline")}
    if block.seed:
        pairs["seed"] = block.seed.hex()
    session.out.fields(pairs, {**_plain(block, now), "claims": [dict(zip(names, one)) for one in claims]})
    if claims and not session.out.as_json:
        rows = [(queue_name(origin, rank), *rest) for origin, rank, *rest in claims]
        session.out.table(("origin", "messages>", "planned>"), rows)


@command(_TOKEN, example="$ block release 0f3a…")
def release(session: Session, args: Namespace) -> None:
    """Abandon a block: settle the reported results, and requeue the rest.

    Its workers cannot settle it any more.
    """
    with session.queue() as queue:
        block = queue.blocks.get(args.token)
        done = queue.blocks.release(args.token)
    session.out.answer({"block": block.id, **vars(done)}, f"released block {block.id}: {summary(done)}")


def _plain(block: Block, now: datetime) -> dict[str, object]:
    return record(block, overdue=block.state_at(now) == "overdue")


BLOCK = Group(
    "block",
    "list and release blocks, and predict the next ones",
    (list_blocks, show, release, dry_run, forecast, class_archive),
    example="$ block list --state planned\n$ block dry-run",
)
