"""`story`: what happened to one message, from its sending to its end."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from .command import Command, option
from .output import shown
from .session import Session
from .values import message, words

if TYPE_CHECKING:
    from ..queue import Step


def story(session: Session, args: Namespace) -> bool:
    """Tell what happened to a message."""
    with session.queue() as queue:
        found = queue.inspect.history(args.message, origin=args.origin)
    if session.out.as_json:
        end = _plain(found.end) if found.end else None
        session.out.value({
            "id": found.id, "state": found.state, "addresses": found.addresses, "end": end, "due": found.due,
            "steps": [_plain(step) for step in found.steps],
        })  # fmt: skip
    elif found.state == "unknown":
        session.out.remark("nothing is known of such a message; events are kept as long as the ring's keep_events says")
    elif found.due:
        session.out.remark(f"it is for later, joins its queue at {shown(found.due)}, and has no address until then")
    else:
        session.out.table(("at", "what", "address", "block>", "by", ""), [_row(step) for step in found.steps])
        now = {"gone": "it is gone"}.get(found.state, f"it is {found.state}")
        name = f"message {found.id.hex()}: " if found.id else ""
        session.out.remark(f"{name}{now}")
    return found.state != "unknown"


def _row(step: Step) -> tuple[Any, ...]:
    at = "" if step.at is None else shown(step.at)
    said = [step.why, f"weight {step.weight}" if step.weight is not None and not step.why else ""]
    return at, step.what, str(step.address), step.block, step.who, "; ".join(part for part in said if part)


def _plain(step: Step) -> dict[str, Any]:
    return {
        "what": step.what, "at": step.at, "address": step.address, "block": step.block, "who": step.who,
        "why": step.why, "weight": step.weight,
    }  # fmt: skip


STORY = Command(
    "history", "what happened to one message, in order, also when it is gone", story,
    (
        option("message", type=message, metavar="ID|ADDRESS", help="its id in hexadecimal, or ORIGIN:PAGE:INDEX"),
        option("--origin", type=words, metavar="ORIGIN", help="by id: look only here, which is quicker"),
    ),
    about="As long as the ring keeps events. Exit code 1 if nothing is known of it.",
    example="$ message history acme:0:3",
)  # fmt: skip
