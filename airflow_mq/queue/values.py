"""What the queue's methods return, and what a processor is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from io import BytesIO
from typing import IO, Any, NamedTuple

from ..core.blob import Reference
from ..core.errors import BlobMissing, InvalidInput
from ..core.groups import is_below
from ..core.message import Address, check_origin, message_id, message_ids
from ..core.outcome import DONE, Mark, Outcome
from ..core.page import Page
from ..core.priority import HIGH, MARK, REGULAR, book_name, check_priority, origin_of, priority_of, signed
from ..core.taking import OriginPatterns
from ..core.weight import ZERO, Meter, Weight, total_weight
from ..core.working_set import WorkingSet

#: A time, or a duration from now.
When = datetime | timedelta | float | int

_LAST_MOMENT = 253_402_300_799_000_000


@dataclass(frozen=True)
class Enqueued:
    """What became of an enqueue call."""

    count: int
    size: int
    #: How many were not accepted because their idempotency key had been used for them before.
    repeated: int = 0
    #: How many were executed at once (`airflow_mq.queue.sending.inline`), and are settled.
    executed: int = 0


class Delivery:
    """One message, as a processor that runs in place gets it."""

    __slots__ = ("_page", "_working_set", "book", "index", "meter", "payload", "sent")

    def __init__(
        self, book: str, payload: bytes, page: Page, index: int, meter: Meter, working_set: WorkingSet | None = None
    ) -> None:
        self.book = book
        self.payload = payload
        self.index = index
        #: What is left of the block, for processors that meter themselves.
        self.meter = meter
        #: What it sent so far, to be enqueued if this message is done.
        self.sent: Sequence[tuple[Any, ...]] = ()
        self._page, self._working_set = page, working_set

    @property
    def origin(self) -> str:
        """Who sent it."""
        return origin_of(self.book)

    @property
    def priority(self) -> str:
        """`regular` or `high`."""
        return priority_of(self.book)

    @property
    def page(self) -> int:
        """The page in which the message lies."""
        return self._page.index

    @property
    def attempts(self) -> int:
        """How often it was tried before, without an outcome."""
        return self._page.note(self.index).attempts

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self.attempts + 1

    @property
    def block(self) -> int | None:
        """Id of the block that holds the message; none in a service in place."""
        return None

    @property
    def sent_at(self) -> datetime | None:
        """Time at which the message was enqueued; none where the same service enqueues and processes it."""
        known = {} if self._working_set is None else self._working_set.loader.sent_at(self.book, self._page)
        sent = known.get(self.index)
        return None if sent is None else moment(sent)

    @property
    def headers(self) -> Mapping[str, str]:
        """What its sender said beside the payload."""
        if self._working_set is None:
            return {}
        return self._working_set.loader.headers(self.book, self._page, self.index, self.index + 1).get(self.index, {})

    @property
    def address(self) -> Address:
        """Where the message lies."""
        return Address(self.book, self.page, self.index)

    @property
    def id(self) -> bytes:
        """The message's name: the hash of its bytes, wherever they are kept."""
        return message_id(self.payload)

    @property
    def blob(self) -> Reference | None:
        """What the message refers to, if its payload is kept apart: its `hash` and `size`; read it by `open_blob`."""
        return self.payload if isinstance(self.payload, Reference) else None

    def open_blob(self) -> IO[bytes]:
        """The message's payload as a file to read from, wherever it is kept.

        Raises `BlobMissing` if it is not there; what a processor does not catch of that means *unsupported*.
        """
        if not isinstance(self.payload, Reference):
            return BytesIO(self.payload)
        if self._working_set is None:
            raise BlobMissing(self.payload.hash)
        return self._working_set.loader.open_blob(self.payload)

    def __str__(self) -> str:
        return f"{self.address} {self.payload!r}"

    def enqueue(
        self, origin: str, payload: bytes, priority: str = REGULAR, headers: Mapping[str, str] | None = None
    ) -> None:  # fmt: skip
        """Enqueue a message if, and only if, this one is done."""
        name = book_name(check_origin(origin), check_priority(priority))
        self.sent = (*self.sent, (name, payload, headers) if headers else (name, payload))


class _OfBook:
    """Messages that lie in one book: who names that, or a page below zero, means the origin and the priority."""

    origin: str
    page: int
    priority: str

    def __post_init__(self) -> None:
        name: object = self.origin
        page: object = self.page
        if isinstance(name, str) and name.startswith(MARK):
            object.__setattr__(self, "priority", HIGH)
            object.__setattr__(self, "origin", origin_of(name))
        elif isinstance(page, int) and page < 0:
            object.__setattr__(self, "priority", HIGH)
            object.__setattr__(self, "page", signed(page, HIGH))

    @property
    def book(self) -> str:
        """The name of the book in which they lie."""
        return book_name(self.origin, self.priority)


class Facts(NamedTuple):
    """Facts about the messages of a page beside their bytes, by item."""

    #: Attempts without an outcome; of an item that is missing there were none.
    attempts: Mapping[int, int]
    #: Times of enqueuing, in microseconds of the store's clock.
    sent: Mapping[int, int]


@dataclass(frozen=True)
class Batch(_OfBook):
    """Neighbours of one origin, as a batch processor gets them."""

    origin: str
    payloads: Sequence[bytes]
    page: int
    first: int
    _headers: Callable[[], Mapping[int, Mapping[str, str]]] | None = field(default=None, repr=False, compare=False)
    priority: str = REGULAR
    #: Milliseconds that each is expected to take, as its weight tells; nothing where that is not known.
    times: Sequence[int] = field(default=(), repr=False, compare=False)
    #: Id of the block that holds the messages; none in a service in place.
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
        known = self._facts().attempts if self._facts else {}
        return [known.get(at, 0) + 1 for at in self._items]

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
        """What the senders said beside the payloads, one each; nothing where nobody said anything."""
        said = self._headers() if self._headers else {}
        return [said.get(self.first + place, {}) for place in range(len(self.payloads))] if said else ()

    def __len__(self) -> int:
        return len(self.payloads)

    def answer(self, outcome: Outcome = DONE) -> Report:
        """One answer for all of it, to report to the block."""
        last = self.first + len(self.payloads) - 1
        return Report(self.origin, self.page, self.first, last, outcome, self.priority)

    def answers(self, outcomes: Sequence[Outcome]) -> list[Report]:
        """One answer each, to report to the block."""
        if len(outcomes) != len(self.payloads):
            raise ValueError(f"{len(self.payloads)} messages need as many outcomes, not {len(outcomes)}")
        places = range(self.first, self.first + len(self.payloads))
        return [Report(self.origin, self.page, at, at, outcome, self.priority) for at, outcome in zip(places, outcomes)]


@dataclass(frozen=True)
class Report(_OfBook):
    """What a processor answered for the messages `first` to `last` of a page."""

    origin: str
    page: int
    first: int
    last: int
    outcome: Outcome | Mark = DONE
    priority: str = REGULAR


@dataclass
class Serviced:
    """What servicing, or a block, came to."""

    weight: Weight = ZERO
    processed: int = 0
    failed: int = 0
    set_aside: int = 0
    #: Tries that came to nothing, and of a block also what was not tried behind those.
    went_back: int = 0
    expired: int = 0
    origins: int = 0


@dataclass(frozen=True)
class SetAside:
    """A message that waits for a person."""

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
    #: Seconds since it was sent.
    age: float | None = None
    arrived_at: datetime | None = None
    #: The first block that was planned after it was sent.
    arrived_block: int | None = None
    #: The limit it was judged by, of one that has too many bytes.
    most_bytes: int | None = None
    #: Why the last attempt failed, where messages were looked for by their error.
    error: str = ""


@dataclass(frozen=True)
class Peeked:
    """A message looked at without touching it."""

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
    """What there is to do in a ring, as those who wait for something see it."""

    #: The first origins that a block could serve.
    ready: Sequence[str]
    #: Whether delayed mail has come to its time, and joins its queue when the next block is planned.
    due: bool
    #: Grows with what is sent.
    newest: int
    #: Grows with what is set aside for a person.
    set_aside: int

    def __bool__(self) -> bool:
        """Whether a block would find anything."""
        return bool(self.ready) or self.due


@dataclass(frozen=True)
class Paused:
    """An origin that servicing passes by."""

    origin: str
    reason: str
    actor: str
    since: datetime
    until: datetime | None
    #: Whether all below it is paused with it.
    below: bool = False


@dataclass(frozen=True)
class LedgerBlock:
    """What one block did, queue by queue."""

    block: int
    at: datetime
    entries: Sequence[Any]
    #: The DAG or program that planned it, and the limit that it gave; none, where it left that to the ring.
    server: str | None = None
    limit: Weight | None = None
    #: Which origins it services; none, if it services all.
    patterns: OriginPatterns | None = None
    #: Its place among the ids of inbox rows and events, which come from one counter.
    id: int = field(default=0, repr=False)

    def below(self, name: str) -> tuple[int, Weight]:
        """What this block granted to a group, as paths go: so many messages, so much weight."""
        found = [one for one in self.entries if is_below(one.origin, name)]
        return sum(one.messages for one in found), total_weight([one.granted for one in found])


def microseconds(when: datetime) -> int:
    """Return a time on the store's clock."""
    if when.tzinfo is None:
        raise InvalidInput(
            f"time without a time zone ({when}): expected a zone, as in datetime.now(timezone.utc), or a duration"
        )
    return int(when.timestamp() * 1_000_000)


def instant(when: When, now: Callable[[], int], least: float = -1e10) -> int:
    """Return a time on the store's clock, in microseconds; a duration starts at `now()`.

    :param least: the shortest duration, in seconds.
    """
    if isinstance(when, datetime):
        return microseconds(when)
    seconds = when.total_seconds() if isinstance(when, timedelta) else when
    if isinstance(seconds, bool) or not _is_number(seconds) or not least <= seconds <= 1e10:
        raise InvalidInput(
            f"invalid time {str(when)[:40]!r}: expected a datetime, a timedelta, or seconds from {least:g} to 1e10"
        )
    return now() + int(seconds * 1_000_000)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def moment(microseconds: int) -> datetime:
    """A time of the store's clock; one that no calendar has is the last that one has."""
    if microseconds > _LAST_MOMENT:
        return datetime.max.replace(tzinfo=timezone.utc)
    return datetime.fromtimestamp(microseconds / 1_000_000, timezone.utc)
