"""Queues: the table, one of them, and its messages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from airflow_mq.queue import QueueGlance

from . import shapes
from .access import Reader
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")


@router.get("/queues")
def queues(
    conn_id: str, ring: str, who: Reader,
    prefix: str = "", search: str = "", sort: str = "origin", after: str = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> dict[str, Any]:  # fmt: skip
    """Queues, so many at a time."""
    with opened(conn_id, ring) as queue:
        found = queue.glances(prefix, after, limit)
    rows = [row(one) for one in found]
    return {"rows": rows, "next": found[-1].origin if len(found) >= limit else None, "total": None}


def row(one: QueueGlance) -> dict[str, Any]:
    """A line of the table."""
    return {
        "origin": one.origin, "priority": one.priority, "messages": one.messages, "bytes": one.size, "more": one.more,
        "ready": one.ready, "in_flight": one.in_flight, "set_aside": one.set_aside,
        "oldest": shapes.moment(one.oldest), "paused": None, "share": one.share, "promised": None, "received": None,
        "in_rate": one.lately / 10, "out_rate": 0.0, "why": one.passed_by,
    }  # fmt: skip
