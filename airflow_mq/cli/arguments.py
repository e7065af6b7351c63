"""Arguments that several commands share."""

from __future__ import annotations

from argparse import SUPPRESS

from ..core.priority import PRIORITIES, REGULAR
from .command import Option, option
from .values import address, positive, weight, words

COMMON = (
    option(
        "--store", default=SUPPRESS, metavar="URI",
        help="the store: sqlite:///path or postgresql://user:password@host/database (default: AIRFLOW_MQ_STORE, "
        "which keeps a password out of the list of processes)",
    ),
    option("--conn-id", default=SUPPRESS, metavar="ID", help="take the store from this Airflow connection"),
    option("--ring", type=words, default=SUPPRESS, metavar="RING", help="the ring of the store (default: default)"),
    option("--json", action="store_true", default=SUPPRESS, help="print JSON; commands that stream print one per line"),
    option("--quiet", action="store_true", default=SUPPRESS, help="print results and errors only"),
)  # fmt: skip

ORIGIN = option("origin", metavar="ORIGIN", help="the origin, which names the queue")
#: Of which messages, of what is enqueued, and of what is listed.
PRIORITY = option("--priority", choices=PRIORITIES, default=REGULAR, help="the messages' priority (default: regular)")
ENQUEUED_PRIORITY = option(
    "--priority", choices=PRIORITIES, default=REGULAR, help="high is serviced first (default: regular)"
)
WEIGHT = option("--weight", type=weight, metavar="TIME/SIZE", help="weight of each message")
ADDRESSES = option("address", type=address, nargs="*", metavar="ADDRESS", help="ORIGIN:PAGE:INDEX")
PROCESSOR = option(
    "--processor", required=True, metavar="MODULE:FUNCTION",
    help="the function to call for each message, for example orders:process; found as Python finds modules, and in "
    "the current folder",
)  # fmt: skip
TRACEBACK = option(
    "--traceback", action="store_true",
    help="print the traceback and text of exceptions that a processor raises; the text may quote the message",
)  # fmt: skip


def limit(default: int | None, what: str = "") -> Option:
    """Return the option for the largest number of results."""
    shown = "all" if default is None else default
    return option(
        "--limit",
        type=positive,
        default=default,
        metavar="N",
        help=f"at most N{what and f' {what}'} (default: {shown})",
    )


def why(required: bool = False) -> Option:
    """Return the option for the reason of a decision."""
    more = {"required": True} if required else {"default": ""}
    return option("--why", type=words, metavar="TEXT", help="the reason, which the event records", **more)
