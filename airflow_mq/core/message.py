"""The nouns a user holds in the hand: origin, message, address, footprint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from hashlib import blake2b

from .blob import Reference
from .characters import INVISIBLE
from .errors import EmptyMessage, InvalidInput, InvalidMessage, InvalidOrigin, MessageTooLong
from .priority import HIGH, REGULAR, book_name, check_priority, is_high, origin_of
from .weight import Weight

MOST_ORIGIN_BYTES = 255
#: Bytes of text that is looked up (a key), and of text that is only kept (a reason, headers).
MOST_KEY_BYTES = 1_000
MOST_TEXT_BYTES = 65_536
MOST_NUMBER = 2**63 - 1
#: What names a process.
MOST_PID = 2**31 - 1
_MOST_DIGITS = len(str(MOST_NUMBER))


@total_ordering
@dataclass(frozen=True)
class Address:
    """Where a message lies: the origin, the page of its book, its place in that page, and which book that is."""

    origin: str
    page: int
    index: int
    priority: str = REGULAR

    def __post_init__(self) -> None:
        name: object = self.origin
        if isinstance(name, str) and is_high(name):
            # Made of the name of a book.
            object.__setattr__(self, "origin", origin_of(name))
            object.__setattr__(self, "priority", HIGH)

    @property
    def book(self) -> str:
        """The name of the book that holds it."""
        return book_name(self.origin, self.priority)

    def __lt__(self, other: Address) -> bool:
        """By the books, in the order in which the store has them."""
        return (self.book, self.page, self.index) < (other.book, other.page, other.index)

    def __str__(self) -> str:
        return f"{self.origin}:{self.page}:{self.index}{':high' if self.priority == HIGH else ''}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that `str(address)` wrote."""
        plain = text.removesuffix(f":{HIGH}")
        origin, _, last = plain.rpartition(":")
        origin, _, before = origin.rpartition(":")
        page, index = read_number(before), read_number(last)
        if not origin or page is None or index is None:
            raise InvalidOrigin(
                f"an address reads ORIGIN:PAGE:INDEX, or ORIGIN:PAGE:INDEX:high of a high message, not {text[:80]!r}"
            )
        return cls(origin, page, index, REGULAR if plain == text else HIGH)


@dataclass(frozen=True)
class Footprint:
    """How much of the store a queue takes: unprocessed messages, and the pages that hold them."""

    pages: int
    ready_pages: int
    count: int
    size: int

    def plus(self, other: Footprint) -> Footprint:
        """Both together."""
        pages, ready = self.pages + other.pages, self.ready_pages + other.ready_pages
        return Footprint(pages, ready, self.count + other.count, self.size + other.size)


@dataclass(frozen=True)
class BatchFootprint:
    """What enqueuing the first few messages of a batch would add."""

    messages: int
    size: int
    new_pages: int


@dataclass(frozen=True)
class BatchesFootprints:
    """What enqueuing the first 1, 2, 3 … messages of a batch would add, and where it would begin."""

    #: Bytes in use in the page that takes the first of them; a whole page's, where a new one is opened.
    first_page_position: int
    footprints: list[BatchFootprint]


@dataclass(frozen=True)
class Message:
    """A message on its way in, when it needs more than its bytes."""

    payload: bytes
    #: Sent again with the same key by the same origin within the ring's key window, it is accepted once.
    key: str | None = None
    #: What it costs, where the sender knows better than the ring's weigher.
    weight: Weight | None = None
    #: Free-form text, carried beside the payload; trace context travels here. All of it has at most the ring's
    #: `max_headers` bytes.
    headers: Mapping[str, str] | None = None
    #: `high` or `regular`; what the call says, where nothing is said here.
    priority: str | None = None

    @classmethod
    def of_blob(
        cls, blob: Reference, key: str | None = None, weight: Weight | None = None,
        headers: Mapping[str, str] | None = None, priority: str | None = None,
    ) -> Message:  # fmt: skip
        """A message whose payload is kept apart: `queue.payloads.put` stored it, and told the reference."""
        if not isinstance(blob, Reference):
            raise InvalidMessage(f"a blob is the reference that put_blob returned, not {type(blob).__name__}")
        return cls(blob, key, weight, headers, priority)


def message_id(payload: bytes) -> bytes:
    """The name of a message: the BLAKE2b-256 hash of its bytes, wherever they are kept."""
    return payload.hash if isinstance(payload, Reference) else blake2b(payload, digest_size=32).digest()


def message_ids(payloads: Iterable[bytes]) -> list[bytes]:
    """The names of many messages."""
    return [
        payload.hash if isinstance(payload, Reference) else blake2b(payload, digest_size=32).digest()
        for payload in payloads
    ]


def check_origin(origin: object) -> str:
    """An origin as a caller gave it, or the reason why it is none."""
    if isinstance(origin, str) and origin.isascii() and origin.isprintable() and 1 <= len(origin) <= MOST_ORIGIN_BYTES:
        return origin
    if not isinstance(origin, str):
        raise InvalidOrigin(f"an origin is text, not {type(origin).__name__}")
    try:
        length = len(origin.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidOrigin(f"the origin {origin[:40]!r} is not valid UTF-8 (a lone surrogate)") from None
    if not 1 <= length <= MOST_ORIGIN_BYTES:
        raise InvalidOrigin(f"an origin has 1 to {MOST_ORIGIN_BYTES} bytes, not {length}: {origin[:40]!r}")
    if not origin.isprintable() and any(_is_control(character) for character in origin):
        raise InvalidOrigin(f"the origin {origin[:40]!r} holds a control character")
    return origin


def check_visible(origin: str) -> str:
    """Return an origin that its sender may use where origins have to be visible, or raise `InvalidOrigin`."""
    found = None if origin.isascii() else INVISIBLE.search(origin)
    if found:
        raise InvalidOrigin(
            f"the origin {origin[:40]!a} holds U+{ord(found[0]):04X}, which is invisible or changes the direction of "
            "text, so that it may look like another origin: leave it out, or permit such origins with the ring's "
            "invisible_origins (`airflow-mq ring change RING --set invisible_origins=true`)"
        )
    return origin


def group_of(origin: str) -> str:
    """The first part of an origin that is a path: `acme` of `acme/orders/eu`, and of `acme`."""
    return origin.partition("/")[0]


def check_text(text: object, what: str, most: int = MOST_TEXT_BYTES) -> str:
    """Text of a caller's that is stored or looked up as it is, or the reason why it cannot be."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is text, not {type(text).__name__}")
    try:
        length = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is valid UTF-8, not {text[:40]!r} (a lone surrogate)") from None
    if length > most or "\0" in text:
        raise InvalidInput(f"{what} has at most {most:,} bytes and no NUL among them, not {length:,}: {text[:40]!r}")
    return text


def check_key(key: object) -> str:
    """A key as a caller gave it, or the reason why it is none."""
    text = check_text(key, "a key", MOST_KEY_BYTES)
    if not text:
        raise InvalidInput("a key has at least one character; say none at all for no key")
    return text


def check_headers(headers: object, most: int, carried: Mapping[str, str] | None = None) -> dict[str, str]:
    """Check the headers of one message, and return them with those that are carried along anyway.

    :param most: bytes that all of them may have.
    :param carried: headers of the trace; the sender's own of these names win.
    """
    if not isinstance(headers, Mapping):
        raise InvalidInput(f"headers are a mapping of text to text, not {type(headers).__name__}")
    checked = dict(carried or {})
    for name, value in headers.items():
        checked[check_text(name, "a header's name")] = check_text(value, "a header")
    size = header_bytes(checked)
    if size > most:
        raise InvalidMessage(
            f"the headers of a message have {size:,} bytes (max_headers={most:,}): names and values of all headers "
            "together may have that many; put what is longer into the payload, or raise the ring's max_headers"
        )
    return checked


def header_bytes(headers: Mapping[str, str]) -> int:
    """Return the bytes of all names and values."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())


def check_address(address: object) -> Address:
    """An address as a caller gave it, or the reason why it is none."""
    if not isinstance(address, Address):
        raise InvalidInput(f"an address is an Address(origin, page, index), not {type(address).__name__}")
    check_origin(address.origin)
    check_priority(address.priority)
    for name, number in (("page", address.page), ("index", address.index)):
        check_number(number, f"the {name} of an address")
    return address


def check_number(number: object, what: str) -> int:
    """A count or a place as a caller gave it, or the reason why it is none."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_NUMBER:
        raise InvalidInput(f"{what} is a whole number from 0 to {MOST_NUMBER}, not {str(number)[:40]!r}")
    return number


def read_number(text: str, most: int = MOST_NUMBER) -> int | None:
    """Return the whole number from 0 to `most` that a text writes in ASCII digits, or None if it writes none.

    `str.isdigit` also accepts digits that `int` refuses, and `int` refuses texts of more than 4,300 digits.
    """
    if not (len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= most else None


def check_seconds(seconds: object, what: str) -> float:
    """A length of time as a caller gave it, or the reason why it is none."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e9:
        raise InvalidInput(f"{what} is a number of seconds from 0 to 1e9, not {str(seconds)[:40]!r}")
    return float(seconds)


def _is_control(character: str) -> bool:
    # C0, DEL, C1, and the separators that end a line in a log.
    return character < " " or "\x7f" <= character <= "\x9f" or character in "\u2028\u2029"


def check_payload(payload: object, most: int) -> bytes:
    """A payload as a caller gave it, or the reason why it cannot be taken."""
    if type(payload) is bytes and 0 < len(payload) <= most:
        return payload
    if isinstance(payload, (bytearray, memoryview)):
        payload = bytes(payload)
    if not isinstance(payload, bytes):
        raise InvalidMessage(f"a message is bytes, not {type(payload).__name__}; encode it first")
    if not payload:
        raise EmptyMessage()
    if len(payload) > most:
        raise MessageTooLong(len(payload), most)
    return payload
