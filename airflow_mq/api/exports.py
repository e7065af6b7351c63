"""CSV exports for spreadsheets; no value of a sender becomes a formula."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from airflow_mq.engine.rules.message import Address
from airflow_mq.sheets import USAGE, Columns, sheet

from .access import Reader
from .messages import Kind, moment_of
from .set_aside import Filtered
from .stores import opened
from .usage import Asked

CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}

router = APIRouter(prefix="/export", default_response_class=StreamingResponse, responses=CSV)

#: Rows of a file, and rows per read.
MOST, AT_ONCE = 100_000, 500
#: Rows of a file, read by read.
Reads = Iterator[Iterable[object]]

QUEUES: Columns = (
    "origin", "priority", "messages", ("bytes", "size"), ("at_least", "more"), "in_flight", "set_aside", "oldest",
    "skipped",
)  # fmt: skip
SET_ASIDE: Columns = (
    "address", ("origin", "address.origin"), "id", ("bytes", "size"), "reason", "weight", "limit", "block", "at",
    ("age_seconds", "age"),
)  # fmt: skip
EVENTS: Columns = (
    ("id", "seq"), ("at", moment_of), ("kind", "name"), "address", "origin", "block", ("message", "id"), "weight",
    "detail",
)  # fmt: skip


@router.get("/queues.csv")
def queues(conn_id: str, ring: str, user: Reader, prefix: str = "", search: str = "") -> StreamingResponse:
    """Return queues by name, with the filters of the list."""

    def reads(after: str = "") -> Reads:
        more, wanted = True, search.casefold()
        while more:
            with opened(conn_id, ring) as queue:
                states = queue.inspect.queues(prefix, after, AT_ONCE)
            yield [state for state in states if wanted in state.origin.casefold()]
            more, after = len({state.origin for state in states}) >= AT_ONCE, states[-1].origin if states else after

    return _file("queues", QUEUES, reads())


@router.get("/set-aside.csv")
def set_aside(conn_id: str, ring: str, user: Reader, filtered: Annotated[Filtered, Depends()]) -> StreamingResponse:
    """Return set-aside messages, with the filters of the list."""

    def reads(after: Address | None = None) -> Reads:
        more = True
        while more:
            with opened(conn_id, ring) as queue:
                messages = queue.set_aside.list(after=after, limit=AT_ONCE, **filtered.filters())
            yield messages
            more, after = len(messages) == AT_ONCE, messages[-1].address if messages else after

    return _file("set-aside", SET_ASIDE, reads())


@router.get("/events.csv")
def events(
    conn_id: str, ring: str, user: Reader, kind: Kind | None = None, origin: str | None = None
) -> StreamingResponse:
    """Return events, latest first, with the filters of the list."""

    def reads(before: int | None = None) -> Reads:
        more = True
        while more:
            with opened(conn_id, ring) as queue:
                found, before = queue.inspect.latest_events(before, AT_ONCE, origin=origin or None, name=kind)
            yield found
            more = before is not None

    return _file("events", EVENTS, reads())


@router.get("/usage.csv")
def usage(conn_id: str, ring: str, user: Reader, asked: Annotated[Asked, Depends()]) -> StreamingResponse:
    """Return what was charged, by period and name, with the columns of `report usage --csv`."""
    return _file("usage", USAGE, iter([asked.read(conn_id, ring)]))


def _file(what: str, columns: Columns, reads: Reads) -> StreamingResponse:
    """Stream a file; the first read happens before the response starts, so its errors become a status."""
    rows = chain.from_iterable(chain([next(reads)], reads))
    headers = {"content-disposition": f'attachment; filename="airflow-mq-{what}.csv"'}
    lines = sheet(columns, islice(rows, MOST))
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)
