"""Kafka adapter: records of topics become messages.

    receive(queue, KafkaTopics(consumer({"bootstrap.servers": "…", "group.id": "queue"}), ["orders"], origin="{key}"))

The origin is made of a record's key, topic, partition and headers: `{key}`, `{topic}`, `{topic}/{header.tenant}`. The
record's headers are sent along, with one called `kafka` that names its place: `orders/0/17`. An offset is committed
only after the queue has stored everything before it. The idempotency key of a record is its cluster, topic, partition,
offset and timestamp. So a process that was killed anywhere resumes without loss and without duplicates, within the
ring's `key_window`.

Requires `confluent-kafka` (`pip install 'airflow-mq[kafka]'`), whose settings are librdkafka's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from ..engine.rules.errors import InvalidInput, MessageQueueError
from ..keys import key_for
from . import Arrived, log

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka import Message as Record

#: Settings of librdkafka.
Settings: TypeAlias = Mapping[str, object]
#: Settings of a consumer that exactly-once requires.
FORCED: Settings = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
#: A killed reader is missed after the session timeout; only then its partitions go to others.
DEFAULTS: Settings = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "session.timeout.ms": 10_000,
}
#: A partition of a topic.
Partition: TypeAlias = tuple[str, int]
#: Actions for a record that can never be a message: stop there, or log it and go on.
UNFIT = ("stop", "skip")
#: Limits of a fetch in bytes, and of a request in records.
_BYTES, _ASKED = 16 << 20, 100
#: Errors after other readers joined or left the group.
_LOST = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "_ASSIGNMENT_LOST", "_STATE")
_FIELDS = re.compile(r"\{([^{}]*)\}")
#: Parts in which repeated log lines of the client differ: durations, counts, and its threads.
_FIGURES = re.compile(r"\d+ms|\(\+\d+ .*\)|\[thrd:[^]]*\]|#consumer-\d+")


class KafkaFailed(MessageQueueError):
    """The Kafka cluster failed."""


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raise `KafkaFailed` for an error of the driver."""
    try:
        yield
    except _driver().KafkaException as error:
        raise KafkaFailed(f"{what}: {error.args[0].str()}") from error


class UnfitRecord(MessageQueueError):
    """A record can never be a message; it stays where it is, and the records behind it wait."""


def settings_for(given: Settings) -> dict[str, object]:
    """Return the settings of a consumer with those that exactly-once requires."""
    if not given.get("group.id"):
        raise InvalidInput(
            "missing group.id in the settings of a Kafka consumer: the cluster stores offsets under it; set group.id"
        )
    return {**DEFAULTS, **given, **FORCED}


def consumer(settings: Settings) -> Consumer:
    """Return a consumer for `KafkaTopics` with librdkafka's settings."""
    return _driver().Consumer(settings_for(settings), logger=_OnceLogger())


class _OnceLogger:
    """Logger that passes each line of the client on once. The client repeats lines about a lost broker."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def log(self, level: int, form: str, *values: object) -> None:
        """Log a line unless it was logged before, apart from its figures."""
        text = form % values
        plain = _FIGURES.sub("", text)
        if plain not in self._seen:
            self._seen.add(plain)
            log.log(level, "%s", text)


class KafkaTopics:
    """Records of topics, as messages."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        *,
        origin: str = "{key}",
        unfit: str = "stop",
        patience: float = 60.0,
    ) -> None:
        """Subscribe to topics.

        :param consumer: made by `consumer` or by Airflow's hook; it is closed at the end.
        :param topics: names, or regular expressions that begin with `^`.
        :param origin: template of the origin.
        :param unfit: action for a record that can never be a message: `stop` there, or `skip` it.
        :param patience: seconds to wait for the cluster before it counts as failed.
        """
        if isinstance(topics, str) or not topics:
            raise InvalidInput(f"invalid topics {topics!r:.80}: expected a list of at least one name")
        if unfit not in UNFIT:
            raise InvalidInput(f"invalid unfit {unfit!r}: expected {' or '.join(map(repr, UNFIT))}")
        self._origin_of = origin_of(origin)
        self.consumer, self.unfit, self.patience = consumer, unfit, patience
        self._assigned: set[Partition] | None = None
        self._ended: set[Partition] = set()
        #: For each partition: the first offset that is not committed, and the one after the last fetched.
        self._resume: dict[Partition, int] = {}
        self._next: dict[Partition, int] = {}
        #: The ends of partitions as they were when a run began to read them. A run reads to them: where records keep
        #: coming, a partition may never be at its end.
        self._goals: dict[Partition, int] = {}
        #: Whether the last fetch came to all of these ends.
        self._is_over = False
        self._cluster = ""
        consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        fresh = {(place.topic, place.partition) for place in partitions}
        self._assigned = (self._assigned or set()) | fresh
        self._forget(fresh)

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = {(place.topic, place.partition) for place in partitions}
        # Other readers joined or left. A reader without partitions waits for its next assignment; nothing counts as
        # read before.
        self._assigned = ((self._assigned or set()) - gone) or None
        self._forget(gone)

    def _forget(self, places: set[Partition]) -> None:
        self._ended -= places
        for place in places:
            self._resume.pop(place, None)
            self._next.pop(place, None)
            self._goals.pop(place, None)

    @_failing("the Kafka cluster failed")
    def fetch(self, most: int) -> Sequence[Arrived]:
        """Return the next records, or none when every assigned partition was read to its end.

        That is its end at the beginning of the run. The next call begins another run.
        """
        self._go_back()
        if self._is_over and self._is_read():
            self._is_over = False
            self._goals.clear()
            return []
        found: list[Arrived] = []
        size, until = 0, time.monotonic() + self.patience
        while len(found) < most and size < _BYTES:
            # Wait only briefly if records were fetched already.
            records = self.consumer.consume(min(most - len(found), _ASKED), 0.2 if found else 1.0)
            fresh = [self._arrived(record) for record in records if not self._is_trouble(record)]
            found += fresh
            size += sum(item.size for item in fresh)
            self._set_goals()
            if self._is_read() or (found and not records):
                break
            if not found and time.monotonic() > until:
                raise KafkaFailed(
                    f"no records and no end of partitions from the Kafka cluster within {self.patience:g} seconds: "
                    "check that it is up, that the topics exist, and that this group may read them"
                )
        self._is_over = bool(found) and self._is_read()
        if not found:
            self._goals.clear()
        return found

    def _set_goals(self) -> None:
        """Ask for the ends of partitions that a run begins to read."""
        driver = _driver()
        for place in (self._assigned or set()) - self._goals.keys():
            with _failing("the end of a partition cannot be read"):
                _, end = self.consumer.get_watermark_offsets(driver.TopicPartition(*place), timeout=self.patience)
            self._goals[place] = end

    def _go_back(self) -> None:
        """Seek back to fetched records that were not committed."""
        for place, offset in self._resume.items():
            if offset < self._next.get(place, offset):
                self.consumer.seek(_driver().TopicPartition(*place, offset))
                self._next[place] = offset
                self._ended.discard(place)

    def _is_read(self) -> bool:
        return self._assigned is not None and all(
            place in self._ended or (place in self._goals and self._next.get(place, 0) >= self._goals[place])
            for place in self._assigned
        )

    def _is_trouble(self, record: Record) -> bool:
        error = record.error()
        if error is None:
            self._ended.discard((record.topic(), record.partition()))
            return False
        if error.code() == _driver().KafkaError._PARTITION_EOF:
            self._ended.add((record.topic(), record.partition()))
            return True
        if error.retriable():
            return True
        raise KafkaFailed(f"the Kafka cluster failed: {error.str()}")

    def _arrived(self, record: Record) -> Arrived:
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        self._resume.setdefault((topic, partition), offset)
        self._next[topic, partition] = offset + 1
        place = f"{topic}/{partition}/{offset}"
        headers = {_header_text(name): _header_text(value) for name, value in record.headers() or ()}
        origin, unfit = "", None
        try:
            origin = self._origin_of(record, headers)
        except InvalidInput as error:
            # Report the reason, and not the invalid origin.
            origin, unfit = topic, str(error)
        payload = record.value()
        if payload is None:
            unfit = unfit or "it has no value (a tombstone)"
        key = key_for("kafka", self._cluster_id(), f"{place}@{record.timestamp()[1]}")
        data = bytes(payload or b"")
        return Arrived(key, origin, data, place, {**headers, "kafka": place}, None, len(data), unfit)

    def _cluster_id(self) -> str:
        if not self._cluster:
            # A recreated topic counts from zero, and another cluster may have the same names.
            self._cluster = str(self.consumer.list_topics(timeout=self.patience).cluster_id or "cluster")
        return self._cluster

    def refuse(self, arrived: Arrived, why: str) -> None:
        """Stop at a record, or skip it."""
        if self.unfit == "stop":
            raise UnfitRecord(
                f"the record {arrived.place} can never be a message: {why}; the records before it are in the queue; "
                "fix the cause, or skip such records: unfit='skip'"
            )
        self.commit([arrived])

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """Commit the offsets after these records."""
        after: dict[Partition, int] = {}
        for item in arrived:
            topic, partition, offset = item.place.rsplit("/", 2)
            place = topic, int(partition)
            after[place] = max(after.get(place, 0), int(offset) + 1)
        own = {place: offset for place, offset in after.items() if place in (self._assigned or ())}
        if not own:
            return
        driver = _driver()
        offsets = [driver.TopicPartition(topic, partition, offset) for (topic, partition), offset in own.items()]
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except driver.KafkaException as error:
            if error.args[0].name() not in _LOST:
                raise KafkaFailed(f"the offsets cannot be committed: {error.args[0].str()}") from error
            # The queue has stored the records. The next reader of these partitions gets them again, and their keys are
            # known.
            log.warning(
                "the partitions went to another reader; their records will be fetched again and recognised by key"
            )
        self._resume.update(own)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


def origin_of(template: str) -> Callable[[Record, Mapping[str, str]], str]:
    """Return a function that makes the origin of a record from a template."""
    fields = _FIELDS.findall(str(template))
    known = ("key", "topic", "partition")
    if not fields or any(field not in known and not field.startswith("header.") for field in fields):
        raise InvalidInput(
            f"invalid template of origins {template!r}: expected at least one of {{key}}, {{topic}}, {{partition}} and "
            "{header.NAME}"
        )

    def make(record: Record, headers: Mapping[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("header."):
                text = headers.get(name.removeprefix("header."))
            elif name == "key":
                text = _strict(record.key())
            else:
                text = str(record.topic() if name == "topic" else record.partition())
            if text is None:
                raise InvalidInput(f"it has no {name}, which its origin requires")
            return text

        return _FIELDS.sub(value, template)

    return make


def _strict(data: bytes | str | None) -> str | None:
    if data is None:
        return None
    try:
        return data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError:
        raise InvalidInput("its key is not valid UTF-8") from None


def _header_text(value: bytes | str | None) -> str:
    """Return a header as text; Kafka's headers are bytes or null."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "backslashreplace")
    return text.replace("\0", "\\x00")


def _driver() -> Any:
    try:
        return import_module("confluent_kafka")
    except ImportError as error:
        raise InvalidInput(f"missing Kafka client ({error}): pip install 'airflow-mq[kafka]'") from None
