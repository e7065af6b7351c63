"""`receive`: what other transports have becomes messages."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..core.message import read_number
from ..core.priority import PRIORITIES, REGULAR
from ..words import many
from .command import Command, UsageError, option
from .session import Session
from .values import weight

if TYPE_CHECKING:
    from ..adapters import Adapter, Received


def folder(session: Session, args: Namespace) -> bool:
    """Take the new files of a folder, or of an object store."""
    from ..adapters.landing import LandingFolder, LandingPrefix

    how: dict[str, Any] = {
        "regex": args.regex,
        "lines": args.lines,
        "settle": args.settle,
        "after": "delete" if args.delete else "keep" if args.keep else "move",
    }
    if args.delete and args.keep:
        raise UsageError("--delete and --keep exclude each other: specify one of them")
    if "://" not in args.folder:
        return _receive(session, args, lambda: LandingFolder(args.folder, args.pattern, **how))
    try:
        from fsspec.core import url_to_fs

        files, prefix = url_to_fs(args.folder)
    except (ImportError, ValueError) as error:
        raise UsageError(f"an object store needs fsspec, and its file system: pip install fsspec ({error})") from None
    return _receive(session, args, lambda: LandingPrefix(files, prefix, args.pattern, **how))


def kafka(session: Session, args: Namespace) -> bool:
    """Take what is in Kafka topics."""
    from ..adapters.kafka import KafkaTopics

    def source() -> Adapter:
        consumer = _of_connection(args) if args.kafka_conn_id else _of_settings(args)
        unfit = "skip" if args.skip_unfit else "stop"
        return KafkaTopics(consumer, args.topic, origin=args.origin, unfit=unfit, patience=args.patience)

    return _receive(session, args, source)


def _of_connection(args: Namespace) -> Any:
    if args.config or args.bootstrap:
        raise UsageError("say --kafka-conn-id, or --bootstrap and --config, not both")
    try:
        from airflow_mq.hooks import kafka_consumer
    except ImportError as error:
        raise UsageError(f"--kafka-conn-id needs Airflow: pip install 'airflow-mq[airflow,kafka]' ({error})") from None
    return kafka_consumer(args.kafka_conn_id, args.topic, args.group)


def _of_settings(args: Namespace) -> Any:
    from ..adapters.kafka import consumer

    settings: dict[str, Any] = _read(args.config) if args.config else {}
    if args.bootstrap:
        settings["bootstrap.servers"] = args.bootstrap
    if args.group:
        settings["group.id"] = args.group
    if not settings.get("bootstrap.servers"):
        raise UsageError("which cluster? say --bootstrap HOST:PORT, --config FILE or --kafka-conn-id ID")
    return consumer(settings)


def _read(path: str) -> dict[str, Any]:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"the settings cannot be read from {path!r}: {error}") from None
    if not isinstance(settings, dict):
        raise UsageError(f"{path!r} holds no object of JSON with librdkafka's settings")
    return settings


def _receive(session: Session, args: Namespace, make: Callable[[], Adapter]) -> bool:
    from ..adapters import Received, receive

    with session.queue() as queue, session.out.progress("receiving") as told, closing(make()) as source:
        done = receive(
            queue, source, most=args.most, batch=args.batch, weight=args.weight, priority=args.priority,
            progress=lambda so_far: told(str(so_far)),
        )  # fmt: skip
        unmatched = _unmatched(source) if done == Received() else ""
    _tell(session, done, unmatched)
    return not done.refused


def _unmatched(source: Adapter) -> str:
    """Where nothing came, what the pattern may have been too narrow for."""
    count, first = getattr(source, "unmatched", 0), getattr(source, "first_unmatched", "")
    return f"; the pattern does not match what is there: {many(count, 'file')}, {first!a} first" if count else ""


def _tell(session: Session, done: Received, unmatched: str) -> None:
    session.out.value({"count": done.count, "size": done.size, "repeated": done.repeated, "refused": done.refused})
    session.out.remark(str(done) + unmatched)


def _count(text: str) -> int:
    number = read_number(text, 1 << 40)
    if not number:
        raise ArgumentTypeError(f"a number of messages is at least 1, not {text[:40]!r}")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ArgumentTypeError(f"seconds are a number from 0 on, not {text!r}")
    return seconds


_COMMON = (
    option("--most", type=_count, metavar="NUMBER", help="stop after about so many messages"),
    option("--batch", type=_count, default=500, metavar="NUMBER", help="enqueued in one transaction (default: 500)"),
    option("--weight", type=weight, metavar="TIME/SIZE", help="what each of them will cost"),
    option("--priority", choices=PRIORITIES, default=REGULAR, help="high is serviced first (default: regular)"),
)

RECEIVE = (
    Command(
        "receive-folder", "new files become messages, once", folder,
        (
            option("folder", metavar="FOLDER", help="a folder, or an address that fsspec knows: s3://bucket/path"),
            option("--pattern", metavar="PATTERN", help="takes the origin from the path: '{origin}/*.json'"),
            option("--regex", metavar="REGEX", help="the same as a regular expression with a group origin"),
            option("--lines", action="store_true", help="each line of a file is a message"),
            option(
                "--settle", type=_seconds, default=2.0, metavar="SECONDS",
                help="leave alone what changed within so many (default: 2)",
            ),
            option("--delete", action="store_true", help="delete what was received; else it is moved to .received"),
            option("--keep", action="store_true", help="leave files where they are; write receipts to .received"),
            *_COMMON,
        ),
        about="A file is moved only when the queue has it; a file that was received is known by its path, its time "
        "and its size. What can never be a message is moved to .refused, and the exit code is 1.",
        example="$ message receive-folder /data/landing --pattern '{origin}/*.json'\n"
        "$ message receive-folder /data/landing --pattern '{origin*}/*.csv' --lines --delete",
    ),
    Command(
        "receive-kafka", "what is in topics becomes messages, once", kafka,
        (
            option("topic", nargs="+", metavar="TOPIC", help="a name, or a regular expression that begins with ^"),
            option("--bootstrap", metavar="HOST:PORT", help="the cluster"),
            option("--group", metavar="NAME", help="the consumer group, under which the cluster keeps offsets"),
            option("--config", metavar="FILE", help="librdkafka's settings as JSON; the place for passwords"),
            option("--kafka-conn-id", metavar="ID", help="take the settings from this connection of Airflow"),
            option(
                "--origin", default="{key}", metavar="TEMPLATE",
                help="made of {key}, {topic}, {partition} and {header.NAME} (default: {key})",
            ),
            option("--skip-unfit", action="store_true", help="go on past what can never be a message"),
            option(
                "--patience", type=_seconds, default=60.0, metavar="SECONDS",
                help="how long the cluster may be silent (default: 60)",
            ),
            *_COMMON,
        ),
        about="Reads to the end of every partition, and stops there. Offsets are committed only after what is "
        "before them is in the queue.",
        example="$ message receive-kafka orders --bootstrap localhost:9092 --group queue\n"
        "$ message receive-kafka '^tenant-.*' --config kafka.json --origin '{topic}'",
    ),
)  # fmt: skip
