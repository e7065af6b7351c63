"""`enqueue`: messages from arguments, files, standard input or NDJSON."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

from ..engine.rules.message import check_origin
from ..words import many
from .arguments import ENQUEUED_PRIORITY, WEIGHT, header, when, words
from .command import UsageError, command, option
from .ndjson import Lines
from .output import Tell
from .payload import enqueue_files
from .session import Session

if TYPE_CHECKING:
    from ..engine.queue.values import Enqueued

#: The number of messages between two updates of the progress.
_STEP = 1000


@command(
    option("origin ORIGIN", "the sender, which names the queue", nargs="?"),
    option("message MESSAGE", "a message; - is all of standard input", nargs="*"),
    option("--file PATH", "enqueue a file as a message; may be repeated; - is stdin", action="append"),
    option(
        "--blob PATH",
        "enqueue a file of any size as a message with an external payload; may be repeated; - is stdin",
        action="append",
    ),
    option("--lines", "enqueue each line of a file or of standard input as a message"),
    option(
        "--ndjson PATH",
        'enqueue lines of JSON: {"origin", "payload" or "payload_base64", "key", "weight", "headers", '
        '"priority"}; - is stdin; ORIGIN is for lines without one',
    ),
    option("--key TEXT", "accept the message once only with this key", words),
    WEIGHT,
    option("--header HEADER=VALUE", "add a header", header, action="append"),
    option("--delay WHEN", "join the queue then: 90s, 15m, 2h, 1d or a time with zone", when),
    option("--expires WHEN", "expire the messages then, if they still wait", when),
    ENQUEUED_PRIORITY,
    example="$ enqueue acme 'an order' 'another order'\n"
    "$ enqueue acme --file order.xml --key order-17 --delay 15m\n"
    "$ enqueue acme --blob orders.parquet\n"
    "$ enqueue acme --priority high 'stop the presses'\n"
    "$ enqueue --ndjson orders.ndjson",
    rest="message",
)
def enqueue(session: Session, args: Namespace) -> None:
    """Enqueue messages from arguments, standard input, files or NDJSON.

    Stores all messages of a call, or none. If the outcome of a call is in doubt, repeat it with --key.
    """
    _check(args)
    common: dict[str, Any] = {
        "weight": args.weight,
        "headers": dict(args.header) if args.header else None,
        "not_before": args.delay,
        "expires": args.expires,
        "priority": args.priority,
    }
    with ExitStack() as stack:
        queue = stack.enter_context(session.queue())
        told = stack.enter_context(session.out.progress("enqueuing"))
        if args.blob:
            done = enqueue_files(queue, args.origin, args.blob, args.key, common, told)
        elif args.ndjson is not None:
            file = stack.enter_context(opened(args.ndjson))
            lines = Lines(file, queue.config, args.origin, queue.session.check_sender)
            done = queue.enqueue_messages(_counted(lines.pairs(), told, [file]), **common)
        else:
            files: list[IO[bytes]] = []
            payloads = _payloads(args, files)
            if args.key is not None:
                done = queue.enqueue_message(args.origin, next(payloads), key=args.key, **common)
            else:
                done = queue.enqueue_messages(args.origin, _counted(payloads, told, files), **common)
    _report(session, done)


def _check(args: Namespace) -> None:
    sources = [bool(args.message), bool(args.file), args.ndjson is not None, bool(args.blob)]
    if sum(sources) != 1:
        raise UsageError(
            "no messages: expected arguments, - for standard input, --file PATH, --blob PATH or --ndjson PATH"
            if not any(sources)
            else "messages from several sources: specify one of arguments, --file, --blob and --ndjson"
        )
    if args.ndjson is None and args.origin is None:
        raise UsageError("no origin: expected airflow-mq enqueue ORIGIN MESSAGE")
    if args.origin is not None:
        check_origin(args.origin)
    if args.key is not None and (
        args.ndjson is not None or args.lines or len([*args.message, *(args.file or ()), *(args.blob or ())]) > 1
    ):
        raise UsageError("--key names one message; give each line of NDJSON its own")
    if args.lines and (args.ndjson is not None or {*args.message} - {"-"}):
        raise UsageError("--lines is for standard input (-) and --file PATH; NDJSON is lines already")
    stdin = [*args.message, *(args.file or ()), *(args.blob or ()), args.ndjson].count("-")
    if stdin > 1:
        raise UsageError("standard input can be read once")


def _payloads(args: Namespace, files: list[IO[bytes]]) -> Iterator[bytes]:
    """Yield the payloads of arguments and files; `files` holds the file that is being read."""
    for word in args.message or args.file:
        if args.message and word != "-":
            # The very bytes that were typed, whatever their encoding.
            yield os.fsencode(word)
            continue
        with opened(word) as file:
            files[:] = [file]
            if args.lines:
                yield from (line.rstrip(b"\r\n") for line in file if line.strip(b"\r\n"))
            else:
                yield file.read()


def opened(name: str) -> IO[bytes]:
    """Open a file that an argument names; - is standard input."""
    try:
        # Closing what is read from here leaves standard input open to others.
        return open(0 if name == "-" else name, "rb", closefd=name != "-")
    except OSError as error:
        raise UsageError(f"{name!r} cannot be read: {error.strerror}") from None


def _counted(messages: Iterator[Any], told: Tell, files: Sequence[IO[bytes]]) -> Iterator[Any]:
    for count, message in enumerate(messages, start=1):
        if count % _STEP == 0:
            told(f"{count:,} messages read", next(map(_part, files), None))
        yield message
    told("storing")


def _part(file: IO[bytes]) -> float | None:
    """Return the part of a file that is read, from 0 to 1; None of a pipe."""
    size = 0 if file.closed else os.fstat(file.fileno()).st_size
    return file.tell() / size if size else None


def _report(session: Session, done: Enqueued) -> None:
    text = f"enqueued {many(done.count, 'message')} of {many(done.size, 'byte')}"
    if done.repeated:
        text += f"; {done.repeated:,} had been sent before with the same key"
    session.out.answer({"count": done.count, "size": done.size, "repeated": done.repeated}, text)
