"""`check`: every broken promise in what is stored."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from .command import Command
from .session import Session


def check(session: Session, args: Namespace) -> bool:
    """Look over everything that is stored."""
    with session.queue() as queue, session.out.progress("checking") as tell:
        found = queue.check(lambda done, of: tell(f"{done:,} of {of:,} queues", done / of))
    if session.out.as_json:
        session.out.value([asdict(one) for one in found])
    elif found:
        session.out.table(("where", "what"), [(one.where, one.what) for one in found])
        session.out.remark(f"{len(found):,} violations; nothing was changed. Keep a copy of the store, and report them")
    else:
        session.out.remark(f"all is well in ring {queue.ring}")
    return not found


CHECK = Command(
    "check", "look over everything that is stored, and print every violation", check,
    about="Writes nothing. Exit code 1 if there are any.",
    example="$ check || echo 'call somebody'",
)  # fmt: skip
