"""CSV exports for spreadsheets; no value of a sender becomes a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from airflow_mq.core.events import Event
from airflow_mq.core.message import Address
from airflow_mq.queue import MessageQueue, QueueState, SetAside

from .access import Reader
from .blocks import Kind
from .decisions import Reason
from .stores import opened

CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}

router = APIRouter(
    prefix="/stores/{conn_id}/rings/{ring}/export", default_response_class=StreamingResponse, responses=CSV
)

#: Rows of a file, and rows per read.
MOST, AT_ONCE = 100_000, 500
#: First characters that make a spreadsheet read a cell as a formula, in all Unicode widths.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

Rows = Iterable[Sequence[Any]]
#: Returns the next rows, and whether more follow.
Look = Callable[[MessageQueue], tuple[Rows, bool]]


@router.get("/queues.csv")
def queues(conn_id: str, ring: str, user: Reader, prefix: str = "", search: str = "") -> StreamingResponse:
    """Return queues by name, with the filters of the list."""
    after, wanted = "", search.casefold()

    def look(queue: MessageQueue) -> tuple[Rows, bool]:
        nonlocal after
        found = queue.inspect.queues(prefix, after, AT_ONCE)
        after = found[-1].origin if found else after
        chosen = (one for one in found if wanted in one.origin.casefold())
        return map(_queue, chosen), len({one.origin for one in found}) >= AT_ONCE

    names = ("origin", "priority", "messages", "bytes", "at_least", "in_flight", "set_aside", "oldest", "skipped")
    return _file("queues", conn_id, ring, names, look)


def _queue(one: QueueState) -> Sequence[Any]:
    return (one.origin, one.priority, one.messages, one.size, one.more, one.in_flight, one.set_aside, one.oldest,
            one.skipped)  # fmt: skip


@router.get("/set-aside.csv")
def set_aside(conn_id: str, ring: str, user: Reader, reason: Reason | None = None) -> StreamingResponse:
    """Return set-aside messages, with the filters of the list."""
    after: Address | None = None

    def look(queue: MessageQueue) -> tuple[Rows, bool]:
        nonlocal after
        found = queue.set_aside.list(after=after, limit=AT_ONCE, reason=reason)
        after = found[-1].address if found else after
        return map(_aside, found), len(found) == AT_ONCE

    names = ("address", "origin", "id", "bytes", "reason", "weight", "limit", "block", "at", "age_seconds")
    return _file("set-aside", conn_id, ring, names, look)


def _aside(one: SetAside) -> Sequence[Any]:
    return (str(one.address), one.address.origin, one.id.hex() if one.id else "", one.size, one.reason, one.weight,
            one.limit, one.block, one.at, one.age)  # fmt: skip


@router.get("/events.csv")
def events(
    conn_id: str, ring: str, user: Reader, kind: Kind | None = None, origin: str | None = None
) -> StreamingResponse:
    """Return events, latest first, with the filters of the list."""
    before: int | None = None

    def look(queue: MessageQueue) -> tuple[Rows, bool]:
        nonlocal before
        found, before = queue.inspect.latest_events(before, AT_ONCE, origin=origin or None, name=kind)
        return map(_event, found), before is not None

    names = ("id", "at", "kind", "address", "origin", "block", "message", "weight", "detail")
    return _file("events", conn_id, ring, names, look)


def _event(one: Event) -> Sequence[Any]:
    at = None if one.at is None else datetime.fromtimestamp(one.at, timezone.utc)
    return (one.seq, at, one.name, str(one.address), one.origin, one.block, one.id.hex() if one.id else "",
            one.weight, one.detail)  # fmt: skip


def _file(what: str, conn_id: str, ring: str, names: Sequence[str], look: Look) -> StreamingResponse:
    """Stream a file; the first read happens before the response starts, so its errors become a status."""
    first = _looked(conn_id, ring, look)

    def lines() -> Iterator[str]:
        yield line(names)
        rows, more = first
        count = 0
        while True:
            for row in rows:
                yield line(row)
                count += 1
            if not more or count >= MOST:
                return
            rows, more = _looked(conn_id, ring, look)

    headers = {"content-disposition": f'attachment; filename="airflow-mq-{what}.csv"'}
    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)


def _looked(conn_id: str, ring: str, look: Look) -> tuple[list[Sequence[Any]], bool]:
    with opened(conn_id, ring) as queue:
        rows, more = look(queue)
        return list(rows), more


def line(row: Sequence[Any]) -> str:
    """Return a line of CSV with every cell quoted."""
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow([cell(value) for value in row])
    return out.getvalue()


def cell(value: Any) -> str:
    """Return a value as text that a spreadsheet does not read as a formula."""
    if value is None:
        return ""
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if isinstance(value, (bool, int, float)):
        return text
    return f"'{text}" if text.lstrip(" \u00a0\u200b\ufeff").startswith(FORMULA) else text
