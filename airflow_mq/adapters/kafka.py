"""Kafka topics: what is in them becomes messages.

    receive(queue, KafkaTopics(consumer({"bootstrap.servers": "…", "group.id": "queue"}), ["orders"], origin="{key}"))

The origin is made of a record's key, topic, partition and headers: `{key}`, `{topic}`, `{topic}/{header.tenant}`. Its
headers travel along, and one called `kafka`, which names its place: `orders/0/17`. An offset is committed only after
the queue has everything before it, and a record's idempotency key is its cluster, topic, partition, offset and
timestamp: so a program that is killed anywhere goes on where it was, without loss and without doubles, within the
ring's `key_window`.

Needs `confluent-kafka` (`pip install 'airflow-mq[kafka]'`), whose settings are librdkafka's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..core.errors import InvalidInput, MessageQueueError
from . import Arrived, key_for, log

#: What the settings of a consumer have to say, or exactly-once is lost.
FORCED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
#: Who was killed is missed after a while, and only then its partitions go to others.
DEFAULTS: Mapping[str, Any] = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "session.timeout.ms": 10_000,
}
#: What becomes of a record that can never be a message: stop there, or go on and say so in the log.
UNFIT = ("stop", "skip")
#: Bytes that are fetched together at most, and records that are asked for at a time.
_BYTES, _ASKED = 16 << 20, 100
#: Other readers have come or gone.
_LOST = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "_ASSIGNMENT_LOST", "_STATE")
_FIELDS = re.compile(r"\{([^{}]*)\}")
#: What differs where the client says the same again: how long it took, how often, and by which of its parts.
_FIGURES = re.compile(r"\d+ms|\(\+\d+ .*\)|\[thrd:[^]]*\]|#consumer-\d+")


class KafkaFailed(MessageQueueError):
    """The Kafka cluster did not do what it was asked."""


class UnfitRecord(MessageQueueError):
    """A record can never be a message; it is where it was, and what comes after it waits."""


def settings_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a consumer, with those that exactly-once needs."""
    if not given.get("group.id"):
        raise InvalidInput("the settings of a Kafka consumer name its group.id: under it the cluster keeps the offsets")
    return {**DEFAULTS, **given, **FORCED}


def consumer(settings: Mapping[str, Any]) -> Any:
    """A consumer for `KafkaTopics`, by librdkafka's settings."""
    made: Any = _driver().Consumer(settings_for(settings), logger=_Once())
    return made


class _Once:
    """What the client has to say, each thing once: it tells of a broker that is gone at every try."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def log(self, level: int, form: str, *values: Any) -> None:
        """Pass on what was not said before, but for its figures."""
        text = form % values
        plain = _FIGURES.sub("", text)
        if plain not in self._said:
            self._said.add(plain)
            log.log(level, "%s", text)


class KafkaTopics:
    """What is in topics, as messages."""

    def __init__(
        self,
        consumer: Any,
        topics: Sequence[str],
        *,
        origin: str = "{key}",
        unfit: str = "stop",
        patience: float = 60.0,
    ) -> None:
        """Subscribe to topics.

        :param consumer: as `consumer` makes it, or Airflow's hook; it is closed at the end.
        :param topics: their names, or regular expressions that begin with `^`.
        :param origin: what an origin is made of.
        :param unfit: what to do with a record that can never be a message: `stop` there, or `skip` it.
        :param patience: seconds to wait for the cluster, before it is said to fail.
        """
        if isinstance(topics, str) or not topics:
            raise InvalidInput("topics are a list of names, with at least one in it")
        if unfit not in UNFIT:
            raise InvalidInput(f"unfit is {' or '.join(map(repr, UNFIT))}, not {unfit!r}")
        self._origin_of = origin_of(origin)
        self.consumer, self.unfit, self.patience = consumer, unfit, patience
        self._assigned: set[tuple[str, int]] | None = None
        self._ended: set[tuple[str, int]] = set()
        #: Of each partition, the first offset that is not committed, and the one after the last that was fetched.
        self._resume: dict[tuple[str, int], int] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._cluster = ""
        consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        fresh = {(one.topic, one.partition) for one in partitions}
        self._assigned = (self._assigned or set()) | fresh
        self._forget(fresh)

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        gone = {(one.topic, one.partition) for one in partitions}
        # Others came or went. Whoever has nothing left is told what is its own next; nothing is read to its end before.
        self._assigned = ((self._assigned or set()) - gone) or None
        self._forget(gone)

    def _forget(self, places: set[tuple[str, int]]) -> None:
        self._ended -= places
        for place in places:
            self._resume.pop(place, None)
            self._next.pop(place, None)

    def fetch(self, most: int) -> Sequence[Arrived]:
        """The next records; none when every partition that is ours was read to its end."""
        self._go_back()
        found: list[Arrived] = []
        size, until = 0, time.monotonic() + self.patience
        while len(found) < most and size < _BYTES:
            # With something in hand nobody waits for long.
            records = self.consumer.consume(min(most - len(found), _ASKED), 0.2 if found else 1.0)
            fresh = [self._arrived(record) for record in records if not self._is_trouble(record)]
            found += fresh
            size += sum(one.size for one in fresh)
            if self._is_read() or (found and not records):
                break
            if not found and time.monotonic() > until:
                raise KafkaFailed(
                    f"the Kafka cluster gave neither records nor an end within {self.patience:g} seconds; is it up, "
                    "are the topics there, and may this group read them?"
                )
        return found

    def _go_back(self) -> None:
        """What was fetched and not committed is fetched again."""
        for place, offset in self._resume.items():
            if offset < self._next[place]:
                self.consumer.seek(_driver().TopicPartition(*place, offset))
                self._next[place] = offset
                self._ended.discard(place)

    def _is_read(self) -> bool:
        return self._assigned is not None and self._assigned <= self._ended

    def _is_trouble(self, record: Any) -> bool:
        error = record.error()
        if error is None:
            self._ended.discard((record.topic(), record.partition()))
            return False
        if error.code() == _driver().KafkaError._PARTITION_EOF:
            self._ended.add((record.topic(), record.partition()))
            return True
        if error.retriable():
            return True
        raise KafkaFailed(f"the Kafka cluster says: {error.str()}")

    def _arrived(self, record: Any) -> Arrived:
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        self._resume.setdefault((topic, partition), offset)
        self._next[topic, partition] = offset + 1
        place = f"{topic}/{partition}/{offset}"
        said = {_said(name): _said(value) for name, value in record.headers() or ()}
        origin, unfit = "", None
        try:
            origin = self._origin_of(record, said)
        except InvalidInput as error:
            # An origin that nobody may have: the reason is told, and not what the origin is not.
            origin, unfit = topic, str(error)
        payload = record.value()
        if payload is None:
            unfit = unfit or "it has no value (a tombstone)"
        key = key_for("kafka", self._cluster_id(), f"{place}@{record.timestamp()[1]}")
        data = bytes(payload or b"")
        return Arrived(key, origin, data, place, {**said, "kafka": place}, None, len(data), unfit)

    def _cluster_id(self) -> str:
        if not self._cluster:
            # A topic that is made anew counts from zero; another cluster has the same names.
            self._cluster = str(self.consumer.list_topics(timeout=self.patience).cluster_id or "cluster")
        return self._cluster

    def refuse(self, arrived: Arrived, why: str) -> None:
        """Stop, or go on past it."""
        if self.unfit == "stop":
            raise UnfitRecord(
                f"the record {arrived.place} can never be a message: {why} What came before it is in the queue. Mend "
                "what makes it so, or go on without it: unfit='skip'"
            )
        self.commit([arrived])

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """Commit the offsets after these."""
        after: dict[tuple[str, int], int] = {}
        for one in arrived:
            topic, partition, offset = one.place.rsplit("/", 2)
            place = topic, int(partition)
            after[place] = max(after.get(place, 0), int(offset) + 1)
        mine = {place: offset for place, offset in after.items() if place in (self._assigned or ())}
        if not mine:
            return
        driver = _driver()
        offsets = [driver.TopicPartition(topic, partition, offset) for (topic, partition), offset in mine.items()]
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except driver.KafkaException as error:
            if error.args[0].name() not in _LOST:
                raise KafkaFailed(f"the offsets cannot be committed: {error.args[0].str()}") from error
            # The queue has them. Whoever reads these partitions now gets them once more, and their keys are known.
            log.warning("the partitions went to another reader; their records come again, and are known")
        self._resume.update(mine)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


def origin_of(template: str) -> Callable[[Any, Mapping[str, str]], str]:
    """What makes an origin of a record."""
    fields = _FIELDS.findall(str(template))
    known = ("key", "topic", "partition")
    if not fields or any(field not in known and not field.startswith("header.") for field in fields):
        raise InvalidInput(
            "an origin is made of {key}, {topic}, {partition} and {header.NAME}, with at least one of them, "
            f"not of {template!r}"
        )

    def make(record: Any, headers: Mapping[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("header."):
                text = headers.get(name.removeprefix("header."))
            elif name == "key":
                text = _strict(record.key())
            else:
                text = str(record.topic() if name == "topic" else record.partition())
            if text is None:
                raise InvalidInput(f"it has no {name}, of which its origin is made;")
            return text

        return _FIELDS.sub(value, template)

    return make


def _strict(data: Any) -> str | None:
    if data is None:
        return None
    try:
        return data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError:
        raise InvalidInput("its key is no text in UTF-8;") from None


def _said(value: Any) -> str:
    """A header as text; Kafka has bytes there, and sometimes nothing."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "backslashreplace")
    return text.replace("\0", "\\x00")


def _driver() -> Any:
    try:
        return import_module("confluent_kafka")
    except ImportError as error:
        raise InvalidInput(f"Kafka needs its client: pip install 'airflow-mq[kafka]' ({error})") from None
