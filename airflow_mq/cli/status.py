"""`status`: one screen for a person on call: is a ring serviced, what waits, and what needs a person."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from ..words import many, when
from .command import command
from .doctor import LOOKED_AT, OK, WRONG, Finding, print_findings, ring_findings
from .session import Session
from .top import as_plain

if TYPE_CHECKING:
    from .watching import Look

#: The queues that are shown.
_SHOWN = 5


@command(example="$ status\n$ status --json || echo 'a person is needed'")
def status(session: Session, args: Namespace) -> bool:
    """Show whether a ring is serviced, what waits, and what needs a person.

    Reads only. Of the queues, reads the first 100 in turn; the last line names what it does not check. Exit code 1 if
    something needs a person: a set-aside message, a block that hangs, a queue that no block can service, a block that
    is overdue, or a setting that harms.
    """
    from ..engine import store
    from .screen import facts, queue_lines
    from .watching import Watcher

    with session.queue() as queue:
        version = store.schema_status(queue.store.address).version
        look = Watcher(lambda: queue, limit=LOOKED_AT).look()
        found = ring_findings(queue, look.queues, look.servicing)
        findings = [*_set_aside(look), *(one for one in found if one.level != OK)]
    skipped = _not_looked_at(look)
    wrong = [one for one in findings if one.level == WRONG]
    if session.out.as_json:
        value = {"ok": not wrong, "findings": findings, "not_looked_at": skipped}
        session.out.value({**as_plain(look, session.where), "schema_version": version, **value})
        return not wrong
    place = (("ring", f"{look.ring}, at {when(look.at)}"), ("store", f"{session.where}, schema version {version}"))
    for name, text in (*place, *facts(look)):
        session.out.line(f"{name:11}  {text}")
    session.out.line("")
    session.out.lines(queue_lines(replace(look, queues=look.queues[:_SHOWN]), session.out.width()))
    if len(look.queues) > _SHOWN:
        session.out.remark(f"longest waiting queues: {look.cli('queue list --sort oldest')}")
        session.out.remark(f"why one waits: {look.cli('explain ORIGIN')}")
    session.out.line("")
    print_findings(session, findings)
    session.out.line(
        f"{many(len(wrong), 'thing')} for a person to decide" if wrong else "nothing that was checked needs a person"
    )
    session.out.remark("not checked:")
    for what in skipped:
        session.out.remark(f"       {what}")
    return not wrong


def _set_aside(look: Look) -> list[Finding]:
    number = look.backlog.set_aside
    if not number:
        return []
    what = f"{many(number, 'message')} {'waits' if number == 1 else 'wait'} for a decision"
    return [Finding(WRONG, what, look.cli("set-aside list"), "set aside")]


def _not_looked_at(look: Look) -> list[str]:
    events = look.cli("message events --name Returned --latest")
    more = [f"why queues after the first {LOOKED_AT} in turn wait: {look.cli('queue list')}"]
    later = [f"delayed messages after the first {LOOKED_AT}: {events}"]
    return [
        *more * (len(look.queues) >= LOOKED_AT),
        *later * (look.backlog.delayed > LOOKED_AT),
        f"whether what is stored is consistent: {look.cli('check')}",
        f"the database, its clock and rights: {look.cli('doctor')}",
    ]
