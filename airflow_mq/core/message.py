"""The nouns a user holds in the hand: origin, message, address, footprint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from .errors import EmptyMessage, InvalidMessage, InvalidOrigin, MessageTooLong
from .weight import Weight

MOST_ORIGIN_BYTES = 255


@dataclass(frozen=True, order=True)
class Address:
    """Where a message lies: the origin, the page of its book, and its place in that page."""

    origin: str
    page: int
    index: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.page}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that `str(address)` wrote."""
        origin, _, rest = text.rpartition(":")
        origin, _, page = origin.rpartition(":")
        if not (origin and page.isdigit() and rest.isdigit()):
            raise InvalidOrigin(f"an address reads ORIGIN:PAGE:INDEX, not {text[:80]!r}")
        return cls(origin, int(page), int(rest))


@dataclass(frozen=True)
class Footprint:
    """How much of the store a queue takes: unprocessed messages, and the pages that hold them."""

    pages: int
    ready_pages: int
    count: int
    size: int


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
    #: Sent again with the same key within the ring's key window, it is accepted once.
    key: str | None = None
    #: What it costs, where the sender knows better than the ring's weigher.
    weight: Weight | None = None
    #: Free-form text, carried beside the payload; trace context travels here.
    headers: Mapping[str, str] | None = None


def message_id(payload: bytes) -> bytes:
    """The name of a message: the BLAKE2b-256 hash of its bytes."""
    return blake2b(payload, digest_size=32).digest()


def message_ids(payloads: Iterable[bytes]) -> list[bytes]:
    """The names of many messages."""
    return [blake2b(payload, digest_size=32).digest() for payload in payloads]


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
