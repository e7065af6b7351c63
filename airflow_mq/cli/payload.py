"""`payload`: external payloads, which are larger than a page."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..engine.rules.message import Message
from ..sheets import Columns
from ..words import span
from .arguments import hexadecimal, limit, words
from .command import Group, UsageError, command, option
from .output import Tell
from .session import Session

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.queue.values import Enqueued

_COLUMNS: Columns = (
    ("hash", lambda one: one.hash.hex()),
    ("bytes>", "size"),
    "references>",
    ("age>", lambda one: span(one.age)),
    ("held until", lambda one: one.held_until or ""),
    ("where", lambda one: one.path or "database"),
)


def enqueue_files(
    queue: MessageQueue, origin: str, paths: Sequence[str], key: str | None, common: Mapping[str, Any], tell: Tell
) -> Enqueued:
    """Upload files, and enqueue a message for each; all of them or none."""
    with ExitStack() as stack:
        held = [stack.enter_context(queue.payloads.put(_source(path), progress=_telling(path, tell))) for path in paths]
        return queue.enqueue_messages(origin, [Message(blob.reference, key) for blob in held], **common)


def _source(path: str) -> Path | IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        raise UsageError(f"{path!r} cannot be read: expected a file that you may read")
    return Path(path)


def _telling(path: str, tell: Tell) -> Callable[[int, int | None], None]:
    def show(done: int, total: int | None) -> None:
        if total is None:
            tell(f"{path}, {done:,} bytes")
        else:
            tell(f"{path}, {done:,} of {total:,} bytes", done / total)

    return show


@command(
    option("--after HASH", "only payloads after this one", hexadecimal),
    limit(100),
    name="list",
    example="$ payload list",
)
def list_payloads(session: Session, args: Namespace) -> None:
    """List the external payloads: hash, size and number of references.

    Each is stored once, however many messages refer to it, and is deleted with the last of them.
    """
    with session.queue() as queue:
        found = queue.payloads.list(args.after or b"", args.limit + 1)
    listed, send = found[: args.limit], queue.session.cli("enqueue acme --blob orders.parquet")
    if session.out.items(listed, _COLUMNS, f"no external payloads; send one: {send}") and len(found) > args.limit:
        session.out.remark(f"there are more: continue with --after {listed[-1].hash.hex()}")


@command(
    option("hash HASH", "the hash of the payload, which is the id of its messages", hexadecimal),
    option("--output PATH", "write to this file", words),
    example="$ payload get 0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8 > orders.parquet",
)
def get(session: Session, args: Namespace) -> None:
    """Write a payload to standard output."""
    with ExitStack() as stack:
        queue = stack.enter_context(session.queue())
        tell = stack.enter_context(session.out.progress("reading"))
        file = stack.enter_context(queue.payloads.open(args.hash))
        try:
            out: IO[bytes] = stack.enter_context(open(args.output, "wb")) if args.output else sys.stdout.buffer
        except OSError as error:
            raise UsageError(f"{args.output!r} cannot be written: {error.strerror}") from None
        done = 0
        while data := file.read(1 << 20):
            out.write(data)
            done += len(data)
            tell(f"{done:,} bytes")
        out.flush()


PAYLOAD = Group(
    "payload",
    "list and read external payloads, which are larger than a page",
    (list_payloads, get),
    example="$ payload list",
)
