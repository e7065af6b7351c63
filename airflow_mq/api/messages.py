"""Messages of a queue, with bounded previews of their payloads, and events: schemas and routes."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from airflow_mq.engine.queue.values import Peeked
from airflow_mq.engine.rules import events as rules
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.message import message_id

from .access import Peeker, Reader
from .schemas import MOST_PAGE, Hex, Priority, Schema, Text, Weight
from .stores import opened

router = APIRouter()

#: Headers that hold no secret; of all others a response contains the name only.
PLAIN_HEADERS = frozenset({"content-type", "content-encoding", "traceparent"})
#: Bytes of a payload that a response contains.
SHOWN = 4096
#: Nesting levels of JSON that a response contains; the encoder of responses is recursive.
DEEPEST = 100
#: Whole numbers beyond this are rounded by a browser.
EXACT = 1 << 53


class Payload(Schema):
    """The beginning of a payload: as hexadecimal digits, and as text and JSON if it is valid."""

    shown: int
    truncated: bool
    text: str | None = None
    json_: Any = Field(None, alias="json")
    hex: str = ""
    external: str | None = None


class Message(Schema):
    """A message, read without claiming it."""

    address: Text
    id: str
    size: int
    state: str
    attempts: int
    weight: Weight | None
    sent_at: datetime | None
    headers: dict[str, str]
    payload: Payload


class Messages(Schema):
    """The first messages of a queue or of a page."""

    rows: list[Message]


@router.get("/messages")
def messages(
    conn_id: str,
    ring: str,
    origin: str,
    user: Peeker,
    priority: Priority = "regular",
    page: Annotated[int | None, Query(ge=0, le=MOST_PAGE)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Messages:
    """Return the first messages of a queue or of a page, without claiming them."""
    with opened(conn_id, ring) as queue:
        found = queue.inspect.peek(origin, page=page, limit=limit, priority=priority)
    return Messages(rows=[_message(peeked) for peeked in found])


def _message(peeked: Peeked) -> Message:
    payload = peeked.payload
    headers = {name: value if name.lower() in PLAIN_HEADERS else "…" for name, value in peeked.headers.items()}
    return Message.of(
        peeked,
        id=message_id(payload).hex(),
        size=payload.size if isinstance(payload, Reference) else len(payload),
        headers=headers,
        payload=preview(payload),
    )


def preview(payload: bytes) -> Payload:
    """Return the beginning of a payload in hexadecimal, and as text and JSON if it is valid."""
    if isinstance(payload, Reference):
        return Payload(shown=0, truncated=True, external=payload.hash.hex())
    shown = payload[:SHOWN]
    truncated = len(shown) < len(payload)
    text = _text(shown, truncated)
    value = None if text is None or truncated else _json(text)
    return Payload(shown=len(shown), truncated=truncated, text=text, json=value, hex=shown.hex())


def _text(data: bytes, truncated: bool) -> str | None:
    """Decode UTF-8; the last character may have been cut in two."""
    try:
        return getincrementaldecoder("utf-8")().decode(data, final=not truncated)
    except UnicodeDecodeError:
        return None


def _json(text: str) -> object:
    """Return the JSON value of a text if a browser reads the same value from a response, else None."""
    try:
        value = json.loads(text, parse_int=_exact)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
        return value if _depth(value) <= DEEPEST else None
    except (ValueError, RecursionError):
        return None


def _depth(value: object) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, parts), default=0)


def _exact(text: str) -> int:
    if abs(number := int(text)) > EXACT:
        raise ValueError(text)
    return number


# Events.

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(sorted({*rules.NAMES.values()}))]


class Event(Schema):
    """Outcome of one message."""

    #: As text, because it may exceed the numbers of JavaScript.
    seq: Text
    at: datetime | None
    name: str
    origin: str
    address: Text
    block: int | None
    #: The id of the message.
    id: Hex
    weight: Weight | None
    success: bool | None
    error: str | None
    why: str
    actor: str | None
    detail: str


class Events(Schema):
    """Events, latest first."""

    rows: list[Event]
    next: str | None


@router.get("/events")
def events(
    conn_id: str,
    ring: str,
    user: Reader,
    kind: Kind | None = None,
    origin: str | None = None,
    after: Annotated[str, Query(pattern="^[0-9]{0,24}$")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Events:
    """Return events, latest first; continue with `after=next`, even if a page of them is empty."""
    before = min(int(after), (1 << 63) - 1) if after else None
    with opened(conn_id, ring) as queue:
        found, following = queue.inspect.latest_events(before, limit, origin=origin or None, name=kind)
    return Events.of(None, rows=found, next=None if following is None else str(following))


def moment_of(event: rules.Event) -> datetime | None:
    return None if event.at is None else datetime.fromtimestamp(event.at, timezone.utc)
