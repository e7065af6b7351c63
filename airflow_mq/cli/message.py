"""`message`: messages, their events, and work on one message at a time."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..engine.rules.blob import extent
from ..engine.rules.errors import MessageQueueError
from ..engine.rules.events import NAMES, Event
from ..sheets import Columns
from ..words import many
from .arguments import ENQUEUED_PRIORITY, WEIGHT, count, duration, hexadecimal, json_object, limit, positive, words
from .arguments import message as message_value
from .command import Group, UsageError, command, option
from .near import meant
from .output import shown
from .serialisation import address_fields, payload_fields, record
from .session import Session

if TYPE_CHECKING:
    from ..adapters import Adapter
    from ..engine.queue import MessageQueue
    from ..engine.queue.inspect.history import Step
    from ..engine.queue.values import Peeked


#: The length of a message in a table on a terminal, which shortens it further.
_SHOWN = 1_000
_MESSAGES: Columns = (
    "address",
    "state",
    ("bytes>", lambda one: extent(one.payload)),
    "attempts>",
    ("message", lambda one: shown(one.payload, _SHOWN if sys.stdout.isatty() else None)),
)


@command(
    option("origin ORIGIN", "only messages of this origin (default: of the queues next in turn)", nargs="?"),
    option("--prefix TEXT", "only messages of origins that begin with TEXT", words),
    option("--page N", "only messages of this page of ORIGIN, with the set-aside ones", count),
    limit(20),
    name="list",
    example="$ message list acme --limit 3\n$ message list --prefix acme/",
)
def list_messages(session: Session, args: Namespace) -> None:
    """List the first messages of queues and leave them there.

    A terminal shows the beginning of a long message; a pipe and --json get all of it.
    """
    if args.origin is not None and args.prefix is not None:
        raise UsageError("specify ORIGIN or --prefix, not both")
    if args.page is not None and args.origin is None:
        raise UsageError("--page is a page of one queue: expected ORIGIN")
    found: list[Peeked] = []
    with session.queue() as queue:
        if args.origin is not None:
            origins = [args.origin]
        elif args.prefix is not None:
            origins = [one.origin for one in queue.inspect.queues(args.prefix, limit=args.limit)]
        else:
            origins = [one.origin for one in queue.inspect.ring(args.limit).queues]
        for origin in dict.fromkeys(origins):
            if len(found) < args.limit:
                found += queue.inspect.peek(origin, page=args.page, limit=args.limit - len(found))
        named = args.origin or args.prefix
        near = "" if found else meant(queue, named)
    how = near or f"; send one: {queue.session.cli('enqueue', args.origin or 'acme', '--file order.json')}"
    empty = f"no messages{f' of {named}' if named else ''} here{how}"
    session.out.items(found, _MESSAGES, empty, map(_plain, found))


def _plain(one: Peeked) -> dict[str, object]:
    fields = record(one)
    del fields["payload"]
    return {**address_fields(one.address), **payload_fields(one.payload), **fields}


@command(
    option("--origin ORIGIN", "only events of this origin", words),
    option("--name NAME", "only of this name, such as Processed", choices=sorted(set(NAMES.values()))),
    option("--block N", "only events of this block", count),
    option("--id HEX", "only events of this message", hexadecimal),
    option("--after SEQ", "only events after this one", count, default=0),
    limit(None),
    option("--follow", "wait for more, until Ctrl-C"),
    option("--latest", "the latest events first"),
    example="$ message events --name Returned --latest --limit 20\n$ message events --origin acme --follow --json",
)
def events(session: Session, args: Namespace) -> None:
    """List events of messages, in order.

    With --json prints one object per line. The ring keeps events as long as its keep_events.
    """
    any_seen, near = False, ""
    if args.latest and (args.follow or args.after or args.block is not None or args.id is not None):
        raise UsageError("--latest goes with --origin, --name and --limit only")
    with session.queue() as queue:
        stream = (
            _latest(queue, args.origin, args.name)
            if args.latest
            else queue.inspect.events(
                origin=args.origin, name=args.name, block=args.block, id=args.id, after=args.after, follow=args.follow
            )
        )
        # Counted here, so that --follow ends with the last event and does not wait for one more.
        for event in islice(stream, args.limit):
            any_seen = True
            at = None if event.at is None else datetime.fromtimestamp(event.at, timezone.utc)
            value = record(event, "success", "error", at=at)
            del value["fate"]
            session.out.value(value)
            session.out.line(_line(event, at))
            if args.follow:
                sys.stdout.flush()
        near = "" if any_seen else meant(queue, args.origin)
    if not any_seen:
        session.out.remark(f"no events here; processing writes them, and the ring keeps them for a while{near}")


def _latest(queue: MessageQueue, origin: str | None, name: str | None) -> Iterator[Event]:
    """Yield the events of a ring, latest first."""
    found, before = queue.inspect.latest_events(origin=origin, name=name)
    yield from found
    while before is not None:
        found, before = queue.inspect.latest_events(before, origin=origin, name=name)
        yield from found


def _line(event: Event, at: datetime | None) -> str:
    parts = [str(event.seq), "" if at is None else shown(at), event.name, *[str(event.address)] * bool(event.origin)]
    if event.weight is not None:
        parts.append(f"weight={event.weight}")
    if event.success is False:
        parts.append("without success")
    parts += [part for part in (event.error, event.detail) if part]
    if event.block is not None:
        parts.append(f"block={event.block}")
    if event.id is not None:
        parts.append(f"id={event.id.hex()[:16]}")
    return "  ".join(parts)


@command(
    option("message ID|ADDRESS", "its id in hexadecimal, or ORIGIN:PAGE:INDEX", message_value),
    option("--origin ORIGIN", "search this origin only, which is faster for an id", words),
    example="$ message history acme:0:3",
)
def history(session: Session, args: Namespace) -> bool:
    """Show the events of one message in order, even of a processed one.

    Goes back as far as the ring keeps events. Exit code 1 if the message is unknown.
    """
    with session.queue() as queue:
        found = queue.inspect.history(args.message, origin=args.origin)
    if session.out.as_json:
        session.out.value(record(found, "end"))
    elif found.state == "unknown":
        session.out.remark("nothing is known of this message; the ring keeps events as long as its keep_events")
    elif found.due:
        session.out.remark(f"it joins its queue at {shown(found.due)}, and has no address until then")
    else:
        session.out.items(found.steps, _HISTORY, "")
        name = f"message {found.id.hex()}: " if found.id else ""
        ended = found.state == "gone" and found.steps
        session.out.remark(f"{name}{f'it was {found.steps[-1].what}' if ended else f'it is {found.state}'}")
    return found.state != "unknown"


def _detail(step: Step) -> str:
    parts = [step.why, f"weight {step.weight}" if step.weight is not None and not step.why else ""]
    return "; ".join(part for part in parts if part)


_HISTORY: Columns = (
    ("at", lambda step: "" if step.at is None else shown(step.at)),
    "what",
    "address",
    "block>",
    ("by", "actor"),
    ("", _detail),
)
_TOKENS = option("token TOKEN", "tokens that `message next` printed", words, nargs="+")


@command(
    option("origin ORIGIN", "only of this origin (default: the next in turn)", words, nargs="?"),
    option("--lease AGE", "length of the lease (default: the ring's)", duration),
    name="next",
    example="$ message next acme --lease 60",
)
def next_message(session: Session, args: Namespace) -> bool:
    """Lease the next message, and print it with its token.

    Never waits. Exit code 1 if there is no message to take, or the ring is being serviced.
    """
    with session.queue() as queue:
        token = queue.leases.view(args.origin, lease=args.lease).try_next()
        if token is None:
            session.out.answer(None, f"there is nothing to take at the moment{meant(queue, args.origin)}")
            return False
        payload, headers = token.fetch(), token.headers
    name, address, deadline = str(token), token.address, token.deadline
    session.out.fields(
        {"token": name, "address": address, "until": deadline, "payload": shown(payload, 200)},
        {"token": name, "address": address, "deadline": deadline, **payload_fields(payload), "headers": headers},
    )
    return True


@command(_TOKENS, example='$ message complete "$TOKEN"', rest="token")
def complete(session: Session, args: Namespace) -> None:
    """Mark leased messages as processed.

    All or none.
    """
    with session.queue(_ring_of(session, args.token)) as queue:
        _report(session, "completed", queue.leases.complete(args.token))


@command(_TOKENS, example='$ message give-back "$TOKEN"', rest="token")
def give_back(session: Session, args: Namespace) -> None:
    """Return leased messages to their places in the queue.

    All or none; each counts as an attempt.
    """
    with session.queue(_ring_of(session, args.token)) as queue:
        _report(session, "given back", queue.leases.give_back(args.token))


@command(
    _TOKENS,
    option("--to ORIGIN", "the origin whose queue receives them", words, required=True),
    option("--to-ring NAME", "the ring of that queue, in the same store", words),
    example='$ message transfer "$TOKEN" --to publish',
    rest="token",
)
def transfer(session: Session, args: Namespace) -> None:
    """Move leased messages to another queue.

    Moves all of them in one transaction. The database copies their payloads; none leaves it.
    """
    with session.queue(_ring_of(session, args.token)) as queue:
        _report(session, "handed on", queue.leases.transfer(args.token, args.to, ring=args.to_ring).count)


def _report(session: Session, what: str, number: int) -> None:
    session.out.answer({what.replace(" ", "_"): number}, f"{what}: {many(number, 'message')}")


def _ring_of(session: Session, tokens: Sequence[str]) -> str:
    """Return the ring of the command line, or the one that the tokens name."""
    from ..engine.queue.tokens import ReferenceToken

    rings = {session.ring} if session.ring else {ReferenceToken.parse(token).ring for token in tokens}
    if len(rings) > 1:
        raise UsageError(f"the tokens are of several rings ({', '.join(sorted(rings))}): expected one ring at a time")
    return rings.pop()


_COMMON = (
    option("--limit N", "stop after about N new messages", positive),
    option("--slice-messages N", "commit after N messages (default: 500)", positive, default=500),
    WEIGHT,
    ENQUEUED_PRIORITY,
)


@command(
    option("folder FOLDER", "a folder, or an address that fsspec knows: s3://bucket/path"),
    option("--pattern PATTERN", "take the origin from the path, for example '{origin}/*.json'"),
    option("--regex REGEX", "take the origin from the group `origin` of a regular expression"),
    option("--lines", "enqueue each line of a file as a message"),
    option("--settle AGE", "skip files that changed within the last AGE (default: 2s)", duration, default=2.0),
    option("--delete", "delete received files instead of moving them to .received"),
    option("--keep", "leave files where they are, and write receipts to .received"),
    *_COMMON,
    example="$ message receive-folder /data/landing --pattern '{origin}/*.json'\n"
    "$ message receive-folder /data/landing --pattern '{origin*}/*.csv' --lines --delete",
)
def receive_folder(session: Session, args: Namespace) -> bool:
    """Enqueue each new file of a folder or object store once.

    Moves a file only after the queue has stored it. Path, time and size identify a received file. A file that can never
    be a message is moved to .refused, one that cannot be read stays; the exit code is then 1.
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
    try:
        return _receive(session, args, lambda: LandingPrefix(files, prefix, args.pattern, **how))
    except Exception as error:
        # Clients of object stores raise errors of their own.
        if type(error).__module__.startswith(("airflow_mq", "builtins")) and not isinstance(error, OSError):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise MessageQueueError(f"{args.folder} failed ({reason}); received messages stay, so run it again") from error


@command(
    option("topic TOPIC", "a name, or a regular expression that begins with ^", nargs="+"),
    option("--bootstrap HOST:PORT", "the cluster"),
    option("--group NAME", "the consumer group, under which the cluster keeps offsets"),
    option("--config FILE", "librdkafka's settings in JSON, including passwords"),
    option("--kafka-conn-id ID", "take the settings from this Airflow connection"),
    option(
        "--origin TEMPLATE",
        "the origin, made of {key}, {topic}, {partition} and {header.NAME} (default: {key})",
        default="{key}",
    ),
    option("--skip-unfit", "skip records that can never be messages"),
    option("--patience AGE", "stop if the cluster is silent for AGE (default: 60s)", duration, default=60.0),
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
    from ..adapters import Received, receive, unmatched

    with session.queue() as queue, session.out.progress("receiving") as told, closing(make()) as source:
        done = receive(
            queue,
            source,
            most=args.limit,
            batch=args.slice_messages,
            weight=args.weight,
            priority=args.priority,
            progress=lambda so_far: told(str(so_far)),
        )
        remark = unmatched(source) if done == Received() else ""
    session.out.answer(done, str(done) + remark)
    return not (done.refused or done.unreadable)


MESSAGE = Group(
    "message",
    "list messages and their events, receive them, lease single messages",
    (list_messages, events, history, receive_folder, receive_kafka, next_message, complete, give_back, transfer),
    example="$ message list acme\n$ message history acme:0:3",
)
