"""`check`: integrity of the store, and repair of stranded messages."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from ..engine.rules.priority import told
from ..words import many
from .command import UsageError, command, option
from .session import Session


@command(
    option("--repair", "show which stranded messages a repair would return"),
    option("--yes", "with --repair: apply it"),
    example="$ check || echo 'see docs/operations.md'\n$ check --repair\n$ check --repair --yes",
)
def check(session: Session, args: Namespace) -> bool:
    """Check everything that is stored, and print every violation.

    Writes nothing, unless it repairs. Exit code 1 if there are any violations. --repair finds messages that no service
    would ever reach (the check reports their rows as being in no page) and shows them; with --yes it returns them to
    their queues, behind the messages that lie in pages already.
    """
    if args.yes and not args.repair:
        raise UsageError("--yes goes with --repair: it applies the repair")
    if args.repair:
        return _repair(session, apply=args.yes)
    with session.queue() as queue, session.out.progress("checking") as tell:
        found = queue.check(lambda done, of: tell(f"{done:,} of {of:,} queues", done / of))
    if session.out.items(found, ("where", "what"), f"all is well in ring {queue.ring}"):
        session.out.remark(
            f"{len(found):,} violations; nothing was changed. Keep a copy of the store, and report them. "
            "`airflow-mq check --repair` shows which stranded messages it would return to their queues"
        )
    return not found


def _repair(session: Session, *, apply: bool) -> bool:
    """Show the stranded messages, or return them to their queues; true if none is stranded any more."""
    with session.queue() as queue:
        found = queue.repair(dry_run=not apply)
    repairs = [{"book": one.book, "messages": one.messages, "inbox_rows": list(one.rows)} for one in found]
    session.out.value({"applied": apply, "repairs": repairs})
    if found:
        session.out.table(
            ("book", "messages", "inbox rows"), [(told(o.book), o.messages, _some(o.rows)) for o in found]
        )
    stranded = many(sum(one.messages for one in found), "stranded message")
    if not found:
        session.out.remark(f"nothing to repair in ring {queue.ring}")
    elif apply:
        session.out.remark(f"{stranded} returned to their queues; run `airflow-mq check` to confirm")
    else:
        session.out.remark(f"{stranded} found; nothing was changed. To repair: airflow-mq check --repair --yes")
    return apply or not found


def _some(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"{shown}, …" if len(rows) > 5 else shown
