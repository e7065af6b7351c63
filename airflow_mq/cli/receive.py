"""`message receive-folder` and `message receive-kafka`: messages from other transports."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..core.message import read_number
from ..words import many
from .arguments import ENQUEUED_PRIORITY, WEIGHT
from .command import command, option
from .errors import UsageError
from .session import Session
from .values import json_object

if TYPE_CHECKING:
    from ..adapters import Adapter


def _count(text: str) -> int:
    number = read_number(text, 1 << 40)
    if not number:
        raise ArgumentTypeError(f"invalid number of messages {text[:40]!r}: expected at least 1")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ArgumentTypeError(f"invalid seconds {text!r}: expected a number from 0 on")
    return seconds


_COMMON = (
    option("--most NUMBER", "stop after about NUMBER messages", _count),
    option("--batch NUMBER", "messages per transaction (default: 500)", _count, default=500),
    WEIGHT,
    ENQUEUED_PRIORITY,
)


@command(
    option("folder FOLDER", "a folder, or an address that fsspec knows: s3://bucket/path"),
    option("--pattern PATTERN", "take the origin from the path, for example '{origin}/*.json'"),
    option("--regex REGEX", "take the origin from the group `origin` of a regular expression"),
    option("--lines", "enqueue each line of a file as a message"),
    option("--settle SECONDS", "skip files that changed within the last SECONDS (default: 2)", _seconds, default=2.0),
    option("--delete", "delete received files instead of moving them to .received"),
    option("--keep", "leave files where they are, and write receipts to .received"),
    *_COMMON,
    example="$ message receive-folder /data/landing --pattern '{origin}/*.json'\n"
    "$ message receive-folder /data/landing --pattern '{origin*}/*.csv' --lines --delete",
)
def receive_folder(session: Session, args: Namespace) -> bool:
    """Enqueue each new file of a folder or object store once.

    Moves a file only after the queue has stored it. Path, time and size identify a received file. A file that can never
    be a message is moved to .refused; the exit code is then 1.
    """
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


@command(
    option("topic TOPIC", "a name, or a regular expression that begins with ^", nargs="+"),
    option("--bootstrap HOST:PORT", "the cluster"),
    option("--group NAME", "the consumer group, under which the cluster keeps offsets"),
    option("--config FILE", "librdkafka's settings in JSON, also passwords"),
    option("--kafka-conn-id ID", "take the settings from this Airflow connection"),
    option(
        "--origin TEMPLATE",
        "the origin, made of {key}, {topic}, {partition} and {header.NAME} (default: {key})",
        default="{key}",
    ),
    option("--skip-unfit", "skip records that can never be messages"),
    option("--patience SECONDS", "stop if the cluster is silent for SECONDS (default: 60)", _seconds, default=60.0),
    *_COMMON,
    example="$ message receive-kafka orders --bootstrap localhost:9092 --group queue\n"
    "$ message receive-kafka '^tenant-.*' --config kafka.json --origin '{topic}'",
)
def receive_kafka(session: Session, args: Namespace) -> bool:
    """Enqueue each record of Kafka topics once.

    Reads to the end of every partition and stops there. Commits offsets only after the queue has stored the records
    before them.
    """
    from ..adapters.kafka import KafkaTopics

    def source() -> Adapter:
        consumer = _of_connection(args) if args.kafka_conn_id else _of_settings(args)
        unfit = "skip" if args.skip_unfit else "stop"
        return KafkaTopics(consumer, args.topic, origin=args.origin, unfit=unfit, patience=args.patience)

    return _receive(session, args, source)


def _of_connection(args: Namespace) -> object:
    if args.config or args.bootstrap:
        raise UsageError("specify either --kafka-conn-id, or --bootstrap and --config, not both")
    try:
        from airflow_mq.hooks import kafka_consumer
    except ImportError as error:
        raise UsageError(f"--kafka-conn-id needs Airflow: pip install 'airflow-mq[airflow,kafka]' ({error})") from None
    return kafka_consumer(args.kafka_conn_id, args.topic, args.group)


def _of_settings(args: Namespace) -> object:
    from ..adapters.kafka import consumer

    settings = json_object(args.config) if args.config else {}
    if args.bootstrap:
        settings["bootstrap.servers"] = args.bootstrap
    if args.group:
        settings["group.id"] = args.group
    if not settings.get("bootstrap.servers"):
        raise UsageError("no cluster: expected --bootstrap HOST:PORT, --config FILE or --kafka-conn-id ID")
    return consumer(settings)


def _receive(session: Session, args: Namespace, make: Callable[[], Adapter]) -> bool:
    from ..adapters import Received, receive

    with session.queue() as queue, session.out.progress("receiving") as told, closing(make()) as source:
        done = receive(
            queue,
            source,
            most=args.most,
            batch=args.batch,
            weight=args.weight,
            priority=args.priority,
            progress=lambda so_far: told(str(so_far)),
        )
        unmatched = _unmatched(source) if done == Received() else ""
    session.out.answer(done, str(done) + unmatched)
    return not done.refused


def _unmatched(source: Adapter) -> str:
    """Return a remark on files that the pattern did not match, if nothing was received."""
    count, first = getattr(source, "unmatched", 0), getattr(source, "first_unmatched", "")
    return f"; the pattern does not match what is there: {many(count, 'file')}, {first!a} first" if count else ""
