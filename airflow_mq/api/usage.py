"""Usage: what was charged to origins, paths, processors or DAGs, as schemas and a route."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from airflow_mq.engine.queue.inspect import usage as found
from airflow_mq.engine.rules.weight import total_weight

from .access import Reader
from .schemas import Body, Schema, Weight
from .stores import opened

router = APIRouter()

#: Rows of a response.
MOST_ROWS = 100_000
#: Rows that are built for a response, of which it has the first ones.
MOST_BUILT = 4 * MOST_ROWS


class Asked(Body):
    """The usage that is asked for; days are of UTC, and `since` is the first one of this month by default."""

    by: Literal["origin", "path", "processor", "dag"] = "origin"
    per: Literal["day", "month"] = "day"
    since: date | None = None
    #: The day after the last one.
    until: date | None = None
    #: Only this origin and all below it.
    of: str | None = None

    def read(self, conn_id: str, ring: str) -> list[found.Usage]:
        """Return the usage of a ring, in the order of periods and names."""
        since = self.since or datetime.now(timezone.utc).date().replace(day=1)
        with opened(conn_id, ring) as queue:
            until, of = self.until, self.of or None
            return queue.inspect.usage(self.by, self.per, since=since, until=until, of=of, most=MOST_BUILT)


class UsageRow(Schema):
    """Charges of one period under one name; weights are milliseconds and bytes, `measured` is seconds."""

    period: str
    name: str
    messages: int
    size: int
    attempts: int
    set_aside: int
    planned: Weight
    charged: Weight
    measured: float


class Header(Schema):
    """The published header of a closed day, and what it is the hash of, in hexadecimal."""

    day: str
    hash: str
    before: str
    root: str
    leaves: int


class Headers(Schema):
    """Headers of closed days, in order."""

    headers: list[Header]


class Usage(Schema):
    """Usage, the latest period and the largest charge first, with sums of all rows and their number."""

    rows: list[UsageRow]
    total: int
    messages: int
    charged: Weight


@router.get("/usage")
def usage(
    conn_id: str,
    ring: str,
    user: Reader,
    asked: Annotated[Asked, Depends()],
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1_000,
) -> Usage:
    """Return what was charged by period and origin, path, processor or DAG."""
    rows = sorted(asked.read(conn_id, ring), key=lambda row: (row.period, row.charged), reverse=True)
    return Usage.of(
        None,
        rows=rows[:limit],
        total=len(rows),
        messages=sum(row.messages for row in rows),
        charged=total_weight([row.charged for row in rows]),
    )


@router.get("/bills/headers")
def headers(conn_id: str, ring: str, user: Reader, month: date | None = None) -> Headers:
    """Return the headers of closed days, of all months or of that with a given day."""
    with opened(conn_id, ring) as queue:
        rows = queue.inspect.bill_headers(month)
    return Headers(headers=[Header(**row.plain(), hash=row.hash.hex()) for row in rows])
