"""Nouns of the public surface: origin, message, address and footprint, and checks of callers' values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from .blob import Reference
from .characters import INVISIBLE, shown
from .errors import EmptyMessage, InvalidInput, InvalidMessage, InvalidOrigin, MessageTooLong
from .priority import HIGH, REGULAR, OfBook, check_priority
from .weight import Weight

MOST_ORIGIN_BYTES = 255
#: Limits in bytes of text that is looked up (a key) and of text that is only stored (a reason, headers).
MOST_KEY_BYTES = 1_000
MOST_TEXT_BYTES = 65_536
MOST_NUMBER = 2**63 - 1
#: Largest process id.
MOST_PID = 2**31 - 1
_MOST_DIGITS = len(str(MOST_NUMBER))


@total_ordering
@dataclass(frozen=True)
class Address(OfBook):
    """Address of a message: its origin, page, index in the page, and the priority of its book."""

    origin: str
    page: int
    index: int
    priority: str = REGULAR

    def __lt__(self, other: Address) -> bool:
        """Compare by the names of books, as the store orders them."""
        return (self.book, self.page, self.index) < (other.book, other.page, other.index)

    def __str__(self) -> str:
        return f"{self.origin}:{self.page}:{self.index}{':high' if self.priority == HIGH else ''}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that `str(address)` wrote, or raise `InvalidOrigin`."""
        plain = text.removesuffix(f":{HIGH}")
        origin, _, last = plain.rpartition(":")
        origin, _, before = origin.rpartition(":")
        page, index = read_number(before), read_number(last)
        if not origin or page is None or index is None:
            raise InvalidOrigin(
                f"invalid address {text[:80]!r}: expected ORIGIN:PAGE:INDEX, or ORIGIN:PAGE:INDEX:high for a high "
                "message"
            )
        return cls(check_origin(origin), page, index, REGULAR if plain == text else HIGH)


@dataclass(frozen=True)
class Footprint:
    """Size of a queue in the store: unprocessed messages, and the pages that hold them."""

    pages: int
    ready_pages: int
    count: int
    size: int

    def plus(self, other: Footprint) -> Footprint:
        """Return the sum of both footprints."""
        pages, ready = self.pages + other.pages, self.ready_pages + other.ready_pages
        return Footprint(pages, ready, self.count + other.count, self.size + other.size)


@dataclass(frozen=True)
class BatchFootprint:
    """Growth of a queue if the first messages of a batch were enqueued."""

    messages: int
    size: int
    new_pages: int


@dataclass(frozen=True)
class BatchesFootprints:
    """Growth of a queue for the first 1, 2, 3 … messages of a batch, and the place of the first one."""

    #: Bytes in use in the page that takes the first message; a whole page if a new one is opened.
    first_page_position: int
    footprints: list[BatchFootprint]


class Attributes(NamedTuple):
    """All that is set on a message beside its payload: by its sender, and by the queue when the message returned."""

    #: Weight that its sender declared, or a processor reported.
    weight: Weight | None = None
    #: Expiry time, in microseconds of the store's clock.
    expires: int | None = None
    #: Text sent alongside the payload. The default is shared by all messages without headers: callers get a copy.
    headers: Mapping[str, str] = {}
    #: Number of attempts without an outcome.
    attempts: int = 0
    #: For a message that returned: the first block since it was sent.
    arrived: int | None = None

    @classmethod
    def given_by(cls, given: Any) -> Attributes:
        """Return the unchecked attributes of a `Message`, or of the terms of a call, whose expiry needs a clock."""
        return cls(given.weight, headers=given.headers or PLAIN.headers)

    def checked(self, most_headers: int, carried: Mapping[str, str] | None = None) -> Attributes:
        """Return attributes that a caller gave, as they are stored: stored ones concern every later plan.

        :param most_headers: largest number of bytes of all headers.
        :param carried: headers of the trace (`check_headers`).
        :raises InvalidInput: if they are invalid.
        """
        if self == PLAIN and not carried:
            return PLAIN
        weight = None if self.weight is None else Weight.of(self.weight)
        headers = check_headers(self.headers, most_headers, carried) if self.headers or carried else PLAIN.headers
        # `_replace` takes twice as long.
        return Attributes(weight, self.expires, headers, *self[3:])

    def over(self, others: Attributes) -> Attributes:
        """Return these attributes, and of those that are not set here the others."""
        return Attributes._make(own or other for own, other in zip(self, others))

    @property
    def moving(self) -> Attributes:
        """The attributes that a message takes along to another queue. Its weight differs from queue to queue."""
        return self._replace(weight=None, attempts=0, arrived=None)

    @property
    def beside(self) -> int:
        """Bytes of what is stored beside the payload, and not noted in the page: they count in the message's size."""
        return header_bytes(self.headers) if self.headers else 0

    def plain(self) -> dict[str, Any]:
        """Return the attributes that are set, as JSON stores them."""
        plain = {}
        # A comprehension is a call, and a message that waits aside pays for each.
        for name, value in zip(self._fields, self):
            if value:
                plain[name] = value
        return plain

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Attributes:
        """Return the attributes of `plain`. Other values are left out."""
        values = {name: value for name in cls._fields if (value := plain.get(name))}
        if "weight" in values:
            values["weight"] = Weight(*values["weight"])
        return cls(**values) if values else PLAIN


#: The attributes of a plain message.
PLAIN = Attributes()


class Posted(NamedTuple):
    """A message that an operation enqueues: one that a processor sends, or one that returns to its queue."""

    #: Name of its book.
    origin: str
    payload: bytes
    attributes: Attributes = PLAIN
    #: When the message was first sent, in microseconds; None: it is sent with the commit.
    sent_at: int | None = None


@dataclass(frozen=True)
class Message:
    """A message to enqueue with more than its payload."""

    #: Bytes, or the `reference` of an external payload that `queue.payloads.put` stored.
    payload: bytes
    #: Idempotency key: a message with a key that the origin used within the ring's key window is enqueued once.
    key: str | None = None
    #: Weight, if the sender knows it better than the ring's weigher.
    weight: Weight | None = None
    #: Text sent alongside the payload; trace context travels here. The bytes of all headers are limited by the ring's
    #: `max_headers`.
    headers: Mapping[str, str] | None = None
    #: `high` or `regular`; None: the priority of the call.
    priority: str | None = None


#: Length of an id.
ID_BYTES = 32
#: Hash of nothing, to be copied: a copy takes half as long as a new hash, which parses its parameters.
_EMPTY_HASH = blake2b(digest_size=ID_BYTES)


def message_id(payload: bytes) -> bytes:
    """Return the id of a message: the BLAKE2b-256 hash of its payload, in a page or external."""
    return payload.hash if isinstance(payload, Reference) else blake2b(payload, digest_size=ID_BYTES).digest()


def message_ids(payloads: Iterable[bytes]) -> list[bytes]:
    """Return the ids of many messages."""
    fresh, ids = _EMPTY_HASH.copy, []
    for payload in payloads:
        if isinstance(payload, Reference):
            ids.append(payload.hash)
        else:
            hashed = fresh()
            hashed.update(payload)
            ids.append(hashed.digest())
    return ids


def key_digest(origin: str, payload: bytes) -> bytes:
    """Return the digest of a message with an idempotency key. PostgreSQL can compute it, too: `send` in SQL does."""
    return sha256(origin.encode() + b"\0" + payload).digest()


def check_origin(origin: object) -> str:
    """Return an origin given by a caller, or raise `InvalidOrigin`."""
    if isinstance(origin, str) and origin.isascii() and origin.isprintable() and 1 <= len(origin) <= MOST_ORIGIN_BYTES:
        return origin
    if not isinstance(origin, str):
        raise InvalidOrigin(f"invalid origin ({type(origin).__name__}): expected text")
    try:
        length = len(origin.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidOrigin(f"invalid origin {origin[:40]!r}: expected valid UTF-8, without lone surrogates") from None
    if not 1 <= length <= MOST_ORIGIN_BYTES:
        raise InvalidOrigin(f"invalid origin {origin[:40]!r} ({length} bytes): expected 1 to {MOST_ORIGIN_BYTES} bytes")
    if not origin.isprintable() and any(_is_control(character) for character in origin):
        raise InvalidOrigin(f"invalid origin {origin[:40]!r}: expected text without control characters")
    return origin


def check_visible(origin: str) -> str:
    """Return an origin without invisible characters, or raise `InvalidOrigin`."""
    found = None if origin.isascii() else INVISIBLE.search(origin)
    if found:
        raise InvalidOrigin(
            f"invalid origin {origin[:40]!a}: U+{ord(found[0]):04X} is invisible or changes the direction of text, so "
            "the origin may look like another one; remove the character, or permit such origins: "
            "`airflow-mq ring change RING --set invisible_origins=true`"
        )
    return origin


def check_text(text: object, what: str, most: int = MOST_TEXT_BYTES) -> str:
    """Return text given by a caller, or raise `InvalidInput`.

    :param what: a noun phrase with an article that names the text in the error.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"invalid type of {what} ({type(text).__name__}): expected text")
    try:
        length = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInput(f"invalid UTF-8 in {what} {text[:40]!r}: expected text without lone surrogates") from None
    if length > most or "\0" in text:
        raise InvalidInput(
            f"invalid text of {what} {text[:40]!r} ({length:,} bytes): expected at most {most:,} bytes without NUL"
        )
    return text


def check_key(key: object) -> str:
    """Return a key given by a caller, or raise `InvalidInput`."""
    text = check_text(key, "a key", MOST_KEY_BYTES)
    if not text:
        raise InvalidInput("invalid key '': expected at least one character, or None for no key")
    return text


def check_headers(headers: object, most: int, carried: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers of one message together with those that are carried along.

    :param most: largest number of bytes of all headers.
    :param carried: headers of the trace, left out if the sender gives one of them or if there is no room for them.
    """
    if not isinstance(headers, Mapping):
        raise InvalidInput(f"invalid headers ({type(headers).__name__}): expected a mapping of text to text")
    checked = {}
    for name, value in headers.items():
        checked[check_text(name, "the name of a header")] = check_text(value, "the value of a header")
    size = header_bytes(checked)
    if size > most:
        raise InvalidMessage(
            f"headers too long ({size:,} bytes): expected at most {most:,} bytes of names and values "
            f"(max_headers={most:,}); "
            "put longer data into the payload, or raise the ring's max_headers"
        )
    if carried and carried.keys().isdisjoint(checked) and size + header_bytes(carried) <= most:
        return {**carried, **checked}
    return checked


def header_bytes(headers: Mapping[str, str]) -> int:
    """Return the bytes of all names and values."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())


def check_address(address: object) -> Address:
    """Return an address given by a caller, or raise `InvalidInput`."""
    if not isinstance(address, Address):
        raise InvalidInput(f"invalid address ({type(address).__name__}): expected Address(origin, page, index)")
    check_origin(address.origin)
    check_priority(address.priority)
    for name, number in (("page", address.page), ("index", address.index)):
        check_number(number, f"the {name} of an address")
    return address


def check_number(number: object, what: str) -> int:
    """Return a count or a position given by a caller, or raise `InvalidInput`."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_NUMBER:
        raise InvalidInput(
            f"invalid value {shown(number)!r} for {what}: expected a whole number from 0 to {MOST_NUMBER}"
        )
    return number


def read_number(text: str, most: int = MOST_NUMBER) -> int | None:
    """Return the whole number from 0 to `most` that a text writes in ASCII digits, or None.

    `str.isdigit` also accepts digits that `int` refuses, and `int` refuses texts of more than 4,300 digits.
    """
    if not (len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= most else None


def _is_control(character: str) -> bool:
    # C0, DEL, C1, and the separators that end a line in a log.
    return character < " " or "\x7f" <= character <= "\x9f" or character in "\u2028\u2029"


def check_payload(payload: object, most: int) -> bytes:
    """Return a payload given by a caller as bytes, or raise `InvalidMessage`."""
    if type(payload) is bytes and 0 < len(payload) <= most:
        return payload
    if isinstance(payload, (bytearray, memoryview)):
        payload = bytes(payload)
    if not isinstance(payload, bytes):
        raise InvalidMessage(f"invalid message ({type(payload).__name__}): expected bytes; encode it first")
    if not payload:
        raise EmptyMessage()
    if len(payload) > most:
        raise MessageTooLong(len(payload), most)
    return payload
