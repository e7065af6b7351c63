"""`blobs`, `payload get` and `enqueue --blob`: payloads that no page holds."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .command import Command, UsageError, option
from .progress import Tell
from .session import Session
from .values import message_id, positive, words

if TYPE_CHECKING:
    from ..queue import Enqueued, MessageQueue
    from ..queue.payloads import StoredBlob

_PIECE = 1 << 20


def send_blobs(
    queue: MessageQueue, origin: str, paths: Sequence[str], key: str | None, common: Mapping[str, Any],
    told: Tell,
) -> Enqueued:  # fmt: skip
    """Upload files, and enqueue a message for each; all of them or none."""
    with ExitStack() as stack:
        held = [stack.enter_context(queue.payloads.put(_source(path), progress=_bar(path, told))) for path in paths]
        done = queue.enqueue_messages(origin, [blob.message(key) for blob in held], **common)
        sizes = sum(blob.size for blob in held) if done.count else 0
    return type(done)(done.count, sizes, done.repeated)


def _source(path: str) -> Path | IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        raise UsageError(f"{path!r} cannot be read: there is no such file, or it is not yours to read")
    return Path(path)


def _bar(path: str, told: Tell) -> Callable[[int, int | None], None]:
    def tell(done: int, total: int | None) -> None:
        if total is None:
            told(f"{path}, {done:,} bytes")
            return
        filled = done * 20 // total
        told(f"{path} {'━' * filled}{'╌' * (20 - filled)} {done * 100 // total} % of {total:,} bytes")

    return tell


def blobs(session: Session, args: Namespace) -> None:
    """List payloads kept apart."""
    with session.queue() as queue:
        found = queue.payloads.list(args.after or b"", args.limit + 1)
    shown, more = found[: args.limit], len(found) > args.limit
    if session.out.as_json:
        session.out.value([_plain(one) for one in shown])
        return
    if not shown:
        session.out.remark("no payloads are kept apart; send one: airflow-mq enqueue acme --blob orders.parquet")
        return
    columns = ("hash", "bytes>", "references>", "age>", "held until", "where")
    session.out.table(columns, [
        (one.hash.hex(), one.size, one.references, f"{one.age:,.0f} s", one.held_until or "", one.path or "database")
        for one in shown
    ])  # fmt: skip
    if more:
        session.out.remark(f"there are more; go on with --after {shown[-1].hash.hex()}")


def _plain(one: StoredBlob) -> dict[str, Any]:
    return {
        "hash": one.hash.hex(), "size": one.size, "references": one.references, "age": one.age, "at": one.at,
        "held_until": one.held_until, "path": one.path,
    }  # fmt: skip


def get(session: Session, args: Namespace) -> None:
    """Write a payload to standard output, or to a file."""
    with ExitStack() as stack:
        queue = stack.enter_context(session.queue())
        told = stack.enter_context(session.out.progress("reading"))
        file = stack.enter_context(queue.payloads.open(args.hash))
        out: IO[bytes] = sys.stdout.buffer
        if args.output:
            out = stack.enter_context(open(args.output, "wb"))
        done = 0
        while data := file.read(_PIECE):
            out.write(data)
            done += len(data)
            told(f"{done:,} bytes")
        out.flush()


LIST = Command(
    "list", "payloads larger than a page: hash, size, who refers to them", blobs,
    (
        option("--after", type=message_id, metavar="HASH", help="go on behind this one"),
        option("--limit", type=positive, default=100, metavar="N", help="so many at most (default: 100)"),
    ),
    about="Each is stored once, however many messages refer to it, and goes with the last of them.",
    example="$ payload list",
)  # fmt: skip
GET = Command(
    "get", "write a payload to standard output", get,
    (
        option("hash", type=message_id, metavar="HASH", help="its name, and that of its messages"),
        option("--output", type=words, metavar="PATH", help="write it into this file"),
    ),
    example="$ payload get 0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8 > orders.parquet",
)  # fmt: skip
