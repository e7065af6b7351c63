"""`next`, `complete`, `give-back`, `transfer`: one message at a time, on lease, with a token."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from ..words import many
from .command import Command, UsageError, option
from .output import payload_fields, shown
from .session import Session
from .values import positive, words


def take(session: Session, args: Namespace) -> bool:
    """Take the next message on lease; the answer is no where there is none."""
    with session.queue() as queue:
        token = queue.leases.view(args.origin, lease=args.lease).try_next()
        if token is None:
            session.out.value(None)
            session.out.remark("there is nothing to take at the moment")
            return False
        payload, headers = token.fetch(), token.headers
    if session.out.as_json:
        session.out.value({
            "token": str(token), "address": token.address, "deadline": token.deadline, **payload_fields(payload),
            "headers": headers,
        })  # fmt: skip
    else:
        session.out.fields({
            "token": str(token), "address": str(token.address), "until": token.deadline,
            "payload": shown(payload, 200),
        })  # fmt: skip
    return True


def complete(session: Session, args: Namespace) -> None:
    """Say that messages are treated."""
    with session.queue(_ring_of(args.token)) as queue:
        count = queue.leases.complete(args.token)
    _told(session, "completed", count)


def give_back(session: Session, args: Namespace) -> None:
    """Let messages go back to their places."""
    with session.queue(_ring_of(args.token)) as queue:
        for token in args.token:
            queue.leases.give_back(token)
    _told(session, "given back", len(args.token))


def transfer(session: Session, args: Namespace) -> None:
    """Hand messages on to another queue."""
    with session.queue(_ring_of(args.token)) as queue:
        count = queue.leases.transfer(args.token, args.to, ring=args.to_ring).count
    _told(session, "handed on", count)


def _told(session: Session, what: str, count: int) -> None:
    session.out.value({what.replace(" ", "_"): count})
    session.out.remark(f"{what}: {many(count, 'message')}")


def _ring_of(tokens: Sequence[str]) -> str:
    """The ring in which all of these tokens are good: a token names it."""
    from ..queue import ReferenceToken

    rings = {ReferenceToken.parse(token).ring for token in tokens}
    if len(rings) > 1:
        raise UsageError(f"these tokens are of rings {', '.join(sorted(rings))}; take one ring at a time")
    return rings.pop()


_TOKENS = option("token", type=words, nargs="+", metavar="TOKEN", help="as `message next` prints it")

NEXT = Command(
    "next", "take the next message on lease, and print it with its token", take,
    (
        option("origin", type=words, nargs="?", metavar="ORIGIN", help="of this one; else of the next in turn"),
        option("--lease", type=positive, metavar="SECONDS", help="for so long (default: as the ring says)"),
    ),
    about="Never waits. Exit code 1 where there is nothing to take: no message, or somebody else services the ring.",
    example="$ message next acme --lease 60",
)  # fmt: skip
COMPLETE = Command(
    "complete", "say that messages that were taken are treated", complete, (_TOKENS,),
    example='$ message complete "$TOKEN"',
)  # fmt: skip
GIVE_BACK = Command(
    "give-back", "let messages that were taken go back to their places", give_back, (_TOKENS,),
    about="That counts as a try.",
    example='$ message give-back "$TOKEN"',
)  # fmt: skip
TRANSFER = Command(
    "transfer", "hand messages that were taken on to another queue", transfer,
    (
        _TOKENS,
        option("--to", type=words, required=True, metavar="ORIGIN", help="whose queue takes them"),
        option("--to-ring", type=words, metavar="NAME", help="in this ring of the same store"),
    ),
    about="In one transaction, and without copying them.",
    example='$ message transfer "$TOKEN" --to publish',
    rest="token",
)  # fmt: skip
