"""Events: schemas and route."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from airflow_mq.engine.rules import events as rules

from .access import Reader
from .schemas import Priority, Schema, Weight
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")

Kind = Literal[
    "AttemptsExhausted",
    "Discarded",
    "Executed",
    "Expired",
    "OverweightEnqueued",
    "PageReaped",
    "Processed",
    "ProcessingFailed",
    "Rejudged",
    "Swept",
    "Transferred",
    "WentBack",
]


class Event(Schema):
    """Outcome of one message."""

    id: str
    at: datetime | None
    kind: str
    origin: str
    priority: Priority
    page: int
    index: int
    block: int | None
    message_id: str | None
    weight: Weight | None
    success: bool | None
    error: str | None
    why: str | None
    actor: str | None
    text: str | None


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
    return Events(rows=[_event(event) for event in found], next=None if following is None else str(following))


def _event(event: rules.Event) -> Event:
    message_id = event.id.hex() if event.id else None
    return Event.of(
        event,
        id=str(event.seq),
        at=moment_of(event),
        kind=event.name,
        message_id=message_id,
        text=event.detail,
    )


def moment_of(event: rules.Event) -> datetime | None:
    """Return the time of an event."""
    return None if event.at is None else datetime.fromtimestamp(event.at, timezone.utc)
