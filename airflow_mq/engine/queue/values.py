"""Value types: results of methods, and arguments of processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from io import BytesIO
from typing import IO, NamedTuple

from ..rules.blob import Reference
from ..rules.budget import FAR
from ..rules.errors import DeliverySealed, InvalidInput, ProcessorError
from ..rules.groups import is_below
from ..rules.message import PLAIN, Address, Attributes, Posted, check_origin, message_id, message_ids
from ..rules.orders import Entry
from ..rules.outcome import DONE, Mark, Outcome
from ..rules.page import NO_NOTE, Facts, Page
from ..rules.patterns import OriginPatterns
from ..rules.priority import REGULAR, OfBook, book_name, check_priority, origin_of, priority_of
from ..rules.settle import UNTIMED, Tally
from ..rules.units import check_seconds
from ..rules.weight import ZERO, Meter, Weight, total_weight
from ..store.blobs import open_blob
from ..store.working_set import StoredSet
from .context import ProcessorContext

#: A time, or a duration from now.
When = datetime | timedelta | float | str


@dataclass(frozen=True)
class Enqueued:
    """Result of an enqueue call."""

    count: int
    #: Bytes of their payloads, also of external ones.
    size: int
    #: Number of messages that were skipped because their idempotency key was used before.
    repeated: int = 0
    #: Number of messages that were executed inline, and are settled.
    executed: int = 0


class OpenPage(NamedTuple):
    """A page whose messages are being processed, with what all of them share."""

    book: str
    page: Page
    meter: Meter
    working_set: StoredSet | None
    context: ProcessorContext
    #: Facts about the messages if they are at hand; otherwise the working set reads them.
    facts: Facts | None = None
    #: Id of the block that holds the messages; None in a service in place.
    block: int | None = None


class Delivery:
    """A message for a processor."""

    __slots__ = ("_open", "index", "payload", "sealed", "sent")

    def __init__(self, page: OpenPage, payload: bytes, index: int) -> None:
        self._open = page
        self.payload = payload
        self.index = index
        #: Messages that the processor sent, to be enqueued if this message is done.
        self.sent: Sequence[Posted] = ()
        #: Whether the processor has answered: then no message can be added.
        self.sealed = False

    @property
    def book(self) -> str:
        """Name of the book that holds the message."""
        return self._open.book

    @property
    def context(self) -> ProcessorContext:
        """The context of the processor's call."""
        return self._open.context

    @property
    def meter(self) -> Meter:
        """The rest of the block's weight, for processors that meter themselves."""
        return self._open.meter

    @property
    def origin(self) -> str:
        """Origin of the message."""
        return origin_of(self.book)

    @property
    def priority(self) -> str:
        """Priority of the message: `regular` or `high`."""
        return priority_of(self.book)

    @property
    def page(self) -> int:
        """Page of the message."""
        return self._open.page.index

    @property
    def attempts(self) -> int:
        """Number of earlier attempts without an outcome."""
        return self._open.page.note(self.index).attempts

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self.attempts + 1

    @property
    def block(self) -> int | None:
        """Id of the block that holds the message; None in a service in place."""
        return self._open.block

    @property
    def sent_at(self) -> datetime | None:
        """Time at which the message was enqueued; None if the same service enqueues and processes it."""
        facts = self._facts
        return moment(facts.sent[self.index]) if facts and self.index in facts.sent else None

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the message."""
        facts = self._facts
        return (facts.attributes.get(self.index, PLAIN) if facts else PLAIN).headers or {}

    @property
    def _facts(self) -> Facts | None:
        book, page, _, working_set, _, facts, _ = self._open
        if facts is not None or working_set is None:
            return facts
        return working_set.loader.facts(book, page, self.index, self.index + 1)

    @property
    def address(self) -> Address:
        """Address of the message."""
        return Address(self.book, self.page, self.index)

    @property
    def id(self) -> bytes:
        """Id of the message: the hash of its payload, in a page or external."""
        return message_id(self.payload)

    @property
    def blob(self) -> Reference | None:
        """Reference to the external payload of the message (`hash`, `size`); `open_blob` reads it."""
        return self.payload if isinstance(self.payload, Reference) else None

    def open_blob(self) -> IO[bytes]:
        """Return the payload of the message as a file, in a page or external.

        :raises BlobMissing: if it is not stored; a processor that does not catch it answers *unsupported*.
        """
        if not isinstance(self.payload, Reference):
            return BytesIO(self.payload)
        if self._open.working_set is None:
            raise ProcessorError("the payload exceeds the ring's whole_payloads: open it with `queue.payloads.open`")
        return open_blob(self._open.working_set.reading.store, self.payload)

    def __str__(self) -> str:
        return f"{self.address} {self.payload!r}"

    def enqueue(
        self, origin: str, payload: bytes, priority: str = REGULAR, headers: Mapping[str, str] | None = None
    ) -> None:
        """Enqueue a message if, and only if, this one is done.

        :raises DeliverySealed: after the processor has answered.
        :raises QueueFull: if the queue has no room for it, and the store is within reach.
        """
        name = book_name(check_origin(origin), check_priority(priority))
        posted = Posted(name, payload, Attributes(headers=headers or PLAIN.headers))
        if self.context.require_room_for is not None:
            self.context.require_room_for(self, [posted])
        self.add([posted])

    def add(self, entries: Sequence[Posted]) -> None:
        """Add messages that the processor sends, all of them or none."""
        context = self._open.context
        if context.process != os.getpid():
            raise DeliverySealed("delivery of another process: a forked child cannot send through it; send by a queue")
        with context.lock:
            self._refuse_sealed()
            sent = self.sent
            if not isinstance(sent, list):
                sent = self.sent = list(sent)
            sent.extend(entries)
            try:
                # A service seals without the lock, and may have found that nothing was sent.
                self._refuse_sealed()
            except DeliverySealed:
                del sent[len(sent) - len(entries) :]
                raise

    def _refuse_sealed(self) -> None:
        if self.sealed:
            raise DeliverySealed()

    def seal(self) -> Sequence[Posted]:
        """End the processor's call, and return the messages that it sent."""
        self.sealed = True
        with self._open.context.lock:
            return self.sent


def deliveries_of(page: OpenPage, payloads: Iterable[bytes], first: int) -> Iterator[Delivery]:
    """Yield messages of a page from index `first` on.

    This does not call the constructor, which takes twice as long: a processor in place pays it for each message.
    """
    new = object.__new__
    for index, payload in enumerate(payloads, first):
        delivery = new(Delivery)
        delivery._open, delivery.payload, delivery.index, delivery.sent = page, payload, index, ()
        delivery.sealed = False
        yield delivery


@dataclass(frozen=True)
class Batch(OfBook):
    """Neighbouring messages of one origin for a batch processor."""

    origin: str
    payloads: Sequence[bytes]
    page: int
    first: int
    priority: str = REGULAR
    #: Id of the block that holds the messages; None in a service in place.
    block: int | None = None
    _facts: Callable[[], Facts] | None = field(default=None, repr=False, compare=False)

    @property
    def ids(self) -> Sequence[bytes]:
        """Ids of the messages: the hashes of their bytes."""
        return message_ids(self.payloads)

    @property
    def addresses(self) -> Sequence[Address]:
        """Addresses of the messages."""
        return [Address(self.origin, self.page, at, self.priority) for at in self._items]

    @property
    def attempts(self) -> Sequence[int]:
        """Numbers of this attempt at each message, from 1."""
        notes = self._facts().notes if self._facts else {}
        return [notes.get(at, NO_NOTE).attempts + 1 for at in self._items]

    @property
    def sent_at(self) -> Sequence[datetime | None]:
        """Times at which the messages were enqueued."""
        known = self._facts().sent if self._facts else {}
        return [None if at not in known else moment(known[at]) for at in self._items]

    @property
    def _items(self) -> range:
        return range(self.first, self.first + len(self.payloads))

    @property
    def headers(self) -> Sequence[Mapping[str, str]]:
        """Headers of the messages, one mapping each; empty if no message has any."""
        attributes = self._facts().attributes if self._facts else {}
        headers = [attributes.get(at, PLAIN).headers or {} for at in self._items] if attributes else []
        return headers if any(headers) else ()

    def __len__(self) -> int:
        return len(self.payloads)

    def answer(self, outcome: Outcome = DONE) -> Report:
        """Return a report of one outcome for all messages."""
        last = self.first + len(self.payloads) - 1
        ids = b"".join(self.ids) if outcome == DONE else b""
        return Report(self.origin, self.page, self.first, last, outcome, self.priority, ids)

    def answers(self, outcomes: Sequence[Outcome]) -> list[Report]:
        """Return reports of one outcome each."""
        if len(outcomes) != len(self.payloads):
            raise ValueError(f"{len(self.payloads)} messages need as many outcomes, not {len(outcomes)}")
        items = zip(self._items, outcomes)
        return [Report(self.origin, self.page, at, at, outcome, self.priority) for at, outcome in items]


@dataclass(frozen=True)
class Report(OfBook):
    """Outcome of the messages `first` to `last` of a page."""

    origin: str
    page: int
    first: int
    last: int
    outcome: Outcome | Mark = DONE
    priority: str = REGULAR
    #: Ids of the messages, one after the other, for a plain `Done`. With them, settling reads no payloads.
    ids: bytes = field(default=b"", repr=False)
    #: Number of an attempt that replaces earlier ones as a whole, above 0. Once it is reported with `Begun`, these
    #: messages have no outcomes but those with this number. The largest number wins.
    epoch: int = 0
    #: Number of the batch in which they were tried, and the microseconds that its calls took until this outcome. The
    #: time of a batch is divided by planned weight. 0 as the number: the time is unknown.
    took: tuple[int, int] = UNTIMED


@dataclass
class Serviced(Tally):
    """Result of servicing, or of a block: a `Tally`, with the used weight and the number of queues."""

    weight: Weight = ZERO
    origins: int = 0

    def plus(self, other: Serviced) -> Serviced:
        """Return the results of two services as one. Their queues may be the same: the larger number counts."""
        total = replace(self, weight=self.weight.plus(other.weight), origins=max(self.origins, other.origins))
        total.add_counts(other)
        return total


@dataclass(frozen=True)
class SetAside:
    """A set-aside message."""

    address: Address
    size: int
    #: `overweight` (for any block), `most` (for its origin), `fraction` and `size` (more than the ring allows),
    #: `attempts` (there were too many of them), or `swept`.
    reason: str
    id: bytes | None = None
    weight: Weight | None = None
    limit: Weight | None = None
    block: int | None = None
    at: datetime | None = None
    #: When it was enqueued, and how many seconds ago.
    age: float | None = None
    arrived_at: datetime | None = None
    #: The first block that was planned after it was enqueued.
    arrived_block: int | None = None
    #: The limit of bytes that it exceeds.
    most_bytes: int | None = None
    #: The last error, if requested.
    error: str = ""


@dataclass(frozen=True)
class Peeked:
    """A message that was read without a change."""

    address: Address
    payload: bytes
    #: `waiting`, `in flight`, `set aside`, or `reported` (its outcome is known, to be settled).
    state: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sent_at: datetime | None = None
    attempts: int = 0
    weight: Weight | None = None


@dataclass(frozen=True)
class Pulse:
    """Summary of the work of a ring, for sensors and triggers."""

    #: The first origins that a block could service.
    ready: Sequence[str]
    #: Whether delayed messages have come to their time, and join their queue when the next block is planned.
    due: bool
    #: A number that grows with enqueued messages.
    newest: int
    #: A number that grows with set-aside messages.
    set_aside: int
    #: Whether queues are skipped because their first messages are in flight.
    in_flight: bool = False

    def __bool__(self) -> bool:
        """Return whether a block would find messages."""
        return bool(self.ready) or self.due


@dataclass(frozen=True)
class Paused:
    """A paused origin."""

    origin: str
    reason: str
    actor: str
    since: datetime
    until: datetime | None
    #: Whether all origins below it are paused, too.
    below: bool = False


@dataclass(frozen=True)
class LedgerBlock:
    """Page of the ledger: a block, queue by queue."""

    block: int
    at: datetime
    entries: Sequence[Entry]
    #: The DAG or program that planned it, and its limit; None: the service weight of the ring.
    server: str | None = None
    limit: Weight | None = None
    #: Origins that it services; None: all.
    patterns: OriginPatterns | None = None
    #: Origins that it skipped without a visit, by reason (`rules.book.SKIPS`). The first few skipped origins are
    #: visited, and have entries instead.
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    #: Groups that it skipped with everything below them, by reason: paused ones, and those whose budgets are used up.
    halted: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    #: Its place among the ids of inbox rows and events, which come from one counter.
    id: int = field(default=0, repr=False)

    def below(self, name: str) -> tuple[int, Weight]:
        """Return the number of messages and the weight that this block granted to a group of paths."""
        entries = [entry for entry in self.entries if is_below(entry.origin, name)]
        return sum(entry.messages for entry in entries), total_weight([entry.granted for entry in entries])


def microseconds(when: datetime) -> int:
    """Return a time on the store's clock."""
    if when.tzinfo is None:
        raise InvalidInput(
            f"time without a time zone ({when}): expected a zone, as in datetime.now(timezone.utc), or a duration"
        )
    return int(when.timestamp() * 1_000_000)


def instant(when: When, now: Callable[[], int], least: float = -1e9) -> int:
    """Return a time on the store's clock, in microseconds; a duration starts at `now()`.

    :param least: the shortest duration, in seconds.
    """
    if isinstance(when, datetime):
        return microseconds(when)
    return now() + int(check_seconds(when, "time", least=least) * 1_000_000)


def moment(microseconds: int) -> datetime:
    """Return a time of the store's clock; one beyond the calendar is its last moment."""
    if microseconds > FAR:
        return datetime.max.replace(tzinfo=timezone.utc)
    return datetime.fromtimestamp(microseconds / 1_000_000, timezone.utc)
