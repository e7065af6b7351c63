"""`housekeep`: what is to be done from time to time."""

from __future__ import annotations

from argparse import Namespace

from ..words import many
from .command import Command, option
from .session import Session


def housekeep(session: Session, args: Namespace) -> None:
    """End dead blocks, and let go of what is kept no longer."""
    with session.queue() as queue:
        done = {
            "expired_messages": queue.set_aside.expire(),
            "dead_blocks": queue.admin.housekeep(),
            "culled_pages": queue.set_aside.cull() if args.cull else 0,
        }
    session.out.value(done)
    session.out.remark(
        f"{many(done['dead_blocks'], 'dead block')} released, "
        f"{many(done['expired_messages'], 'set-aside message')} expired, {many(done['culled_pages'], 'page')} culled; "
        "events, ledgers, keys and payloads are gone that the ring keeps no longer"
    )


HOUSEKEEP = Command(
    "housekeep", "release dead blocks, and let go of what the ring keeps no longer", housekeep,
    about="For cron where no DAG does it: events, ledgers, keys and payloads past their time go, and what "
    "the ring's policies say of what is set aside is done.",
    options=(
        option("--cull", action="store_true", help="remove stale pages, too, with what still waits there for a person"),
    ),
    example="$ ring housekeep",
)  # fmt: skip
