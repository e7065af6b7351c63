"""`blocks`: what is planned, and not settled yet."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.priority import queue_name
from .command import Command, option
from .serving import told_of
from .session import Session, store_now
from .values import positive, words

if TYPE_CHECKING:
    from ..queue import Block

STATES = ("planned", "settled", "released")


def list_blocks(session: Session, args: Namespace) -> None:
    """List blocks, the latest first."""
    with session.queue() as queue:
        found, now = queue.blocks.list(args.state, args.limit), store_now(queue)
    if session.out.as_json:
        session.out.value([_plain(one, now) for one in found])
    elif not found:
        session.out.remark(
            "no blocks here; each run of a DAG with block() is one, and so is what MessageQueue.blocks.plan plans"
        )
    else:
        rows = [
            (one.id, _state(one, now), one.key, one.messages, str(one.planned), str(one.limit), one.deadline, one.token)
            for one in found
        ]
        session.out.table(("block>", "state", "key", "messages>", "planned>", "limit>", "deadline", "token"), rows)


def show(session: Session, args: Namespace) -> None:
    """Show one block, and what it holds."""
    with session.queue() as queue:
        block, now = queue.blocks.get(args.token), store_now(queue)
    held: list[dict[str, Any]] = [
        {"origin": claim.whose, "priority": claim.priority, "messages": claim.messages, "planned": claim.planned}
        for claim in block.claims
    ]
    if session.out.as_json:
        session.out.value({**_plain(block, now), "claims": held})
        return
    session.out.fields({
        "block": block.id, "state": _state(block, now), "key": block.key, "messages": block.messages,
        "planned": str(block.planned), "overhead": str(block.overhead), "limit": str(block.limit),
        "deadline": block.deadline, **({"seed": block.seed.hex()} if block.seed else {}),
    })  # fmt: skip
    if held:
        session.out.table(
            ("origin", "messages>", "planned>"),
            [(queue_name(one["origin"], one["priority"]), one["messages"], str(one["planned"])) for one in held],
        )


def release(session: Session, args: Namespace) -> None:
    """Give a block up."""
    with session.queue() as queue:
        block = queue.blocks.get(args.token)
        done = queue.blocks.release(args.token)
    session.out.value({"block": block.id, **vars(done)})
    session.out.remark(f"released block {block.id}: {told_of(done)}")


def _plain(block: Block, now: datetime) -> dict[str, Any]:
    return {
        "id": block.id, "key": block.key, "token": block.token, "state": block.state, "deadline": block.deadline,
        "overdue": _is_overdue(block, now), "limit": block.limit, "planned": block.planned,
        "overhead": block.overhead, "messages": block.messages, "seed": block.seed,
    }  # fmt: skip


def _is_overdue(block: Block, now: datetime) -> bool:
    return block.state == "planned" and block.deadline <= now


def _state(block: Block, now: datetime) -> str:
    return "overdue" if _is_overdue(block, now) else block.state


_TOKEN = option("token", type=words, metavar="TOKEN", help="the block's token, as `block list` prints it")

BLOCKS = (
    Command(
        "list", "list blocks, the latest first", list_blocks,
        (
            option("--state", choices=STATES, help="only these (default: all)"),
            option("--limit", type=positive, default=100, metavar="N", help="at most so many (default: 100)"),
        ),
        example="$ block list --state planned",
    ),
    Command("show", "show one block, and what it holds", show, (_TOKEN,), example="$ block show 0f3a…"),
    Command(
        "release", "give a block up: what was reported is settled, the rest goes back", release, (_TOKEN,),
        about="Whoever still works for the block cannot settle it any more.",
        example="$ block release 0f3a…",
    ),
)  # fmt: skip
