"""Arguments that several commands share."""

from __future__ import annotations

from argparse import SUPPRESS

from ..engine.rules.priority import PRIORITIES, REGULAR
from .command import Option, option
from .values import address, hexadecimal, positive, weight, words

COMMON = (
    option(
        "--store URI",
        "the store: sqlite:///path or postgresql://user:password@host/database (default: AIRFLOW_MQ_STORE, "
        "which keeps a password out of the list of processes)",
        default=SUPPRESS,
    ),
    option("--conn-id ID", "take the store from this Airflow connection", default=SUPPRESS),
    option("--ring RING", "the ring of the store (default: default)", words, default=SUPPRESS),
    option("--json", "print JSON; commands that stream print one per line", default=SUPPRESS),
    option("--quiet", "print results and errors only", default=SUPPRESS),
)

ORIGIN = option("origin ORIGIN", "the origin, which names the queue")
#: Of which messages, of what is enqueued, and of what is listed.
PRIORITY = option("--priority", "the messages' priority (default: regular)", choices=PRIORITIES, default=REGULAR)
ENQUEUED_PRIORITY = option(
    "--priority", "high is serviced first (default: regular)", choices=PRIORITIES, default=REGULAR
)
WEIGHT = option("--weight TIME/SIZE", "weight of each message", weight)
ADDRESSES = option("address ADDRESS", "ORIGIN:PAGE:INDEX", address, nargs="*")
PROCESSOR = option(
    "--processor MODULE:FUNCTION",
    "the function to call for each message, for example orders:process; found as Python finds modules, and in "
    "the current folder",
    required=True,
)
TRACEBACK = option(
    "--traceback", "print the traceback and text of exceptions that a processor raises; the text may quote the message"
)


def limit(default: int | None, what: str = "") -> Option:
    """Return the option for the largest number of results."""
    shown = "all" if default is None else default
    return option("--limit N", f"at most N{what and f' {what}'} (default: {shown})", positive, default=default)


def why(required: bool = False) -> Option:
    """Return the option for the reason of a decision."""
    more = {"required": True} if required else {"default": ""}
    return option("--why TEXT", "the reason, which the event records", words, **more)


BLOCK_LIMIT = option(
    "--limit TIME/SIZE",
    "the limit of a block (default: that of the latest DAG that serviced the ring, else the ring's)",
    weight,
)
BLOCK_SEED = option("--seed HEX", "the seed of the blocks, in a ring that shuffles", hexadecimal)
