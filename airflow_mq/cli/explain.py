"""`explain`: the reason for which a message waits."""

from __future__ import annotations

import re
from argparse import Namespace

from ..engine.rules.priority import PRIORITIES
from .arguments import BLOCK_LIMIT, BLOCK_SEED, address, positive, words
from .command import command, option
from .near import near_origin
from .session import Session


@command(
    option("what ORIGIN[:PAGE:INDEX[:high]]", "a queue, or one message of it", words),
    option("--queue", "read it as the name of a queue, though it looks like an address"),
    option("--below", "read it as the name of a group: explain the queue whose turn is first"),
    option("--priority", "explain the first message of this priority", choices=PRIORITIES),
    BLOCK_LIMIT,
    BLOCK_SEED,
    option("--ahead N", "look N blocks ahead (default: 100)", positive, default=100),
    example="$ explain acme\n$ explain acme:0:17",
)
def explain(session: Session, args: Namespace) -> None:
    """Print why a queue or message waits, which block runs it, and what would change that.

    For a queue, explains the first waiting message.
    """
    with session.queue() as queue:
        how = {"limit": args.limit, "seed": args.seed, "ahead": args.ahead}
        if re.search(r":[0-9]+:[0-9]+(:high)?$", args.what) and not (args.queue or args.below):
            found = queue.inspect.explain_message(address(args.what), **how)
        else:
            found = queue.inspect.explain(args.what, priority=args.priority, below=args.below, **how)
        near = near_origin(queue, args.what) if found.reason == "empty" else None
    session.out.value(vars(found))
    session.out.line(found.sentence + (f" Did you mean {near}?" if near else ""))
    for remedy in found.remedies:
        session.out.line(f"would help: {remedy}")
