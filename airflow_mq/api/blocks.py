"""Routes of blocks (with their tasks), of the forecast, and of events."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_mq.core.weight import LARGEST, Weight
from airflow_mq.store.rows import LATEST

from . import schemas, views
from .access import Reader
from .guard import same_site_only
from .stores import opened
from .tasks import tasks_of

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")

Kind = Literal[
    "AttemptsExhausted", "Discarded", "Executed", "Expired", "OverweightEnqueued", "PageReaped", "Processed",
    "ProcessingFailed", "Rejudged", "Swept", "Transferred", "WentBack",
]  # fmt: skip


class WeightAsked(BaseModel):
    """A weight in a request."""

    model_config = ConfigDict(extra="forbid")
    time: int = Field(ge=0, le=LARGEST)
    size: int = Field(ge=0, le=LARGEST)


class DryRunRequest(BaseModel):
    """Settings of a forecast."""

    model_config = ConfigDict(extra="forbid")
    limit: WeightAsked | None = None
    shares: dict[str, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(default_factory=dict, max_length=1_000)
    order: Literal["deficit", "rotation", "shuffle"] | None = None
    blocks: int = Field(1, ge=1, le=20)
    seed: str | None = Field(None, min_length=1, max_length=32)


@router.get("/blocks")
def blocks(
    conn_id: str, ring: str, user: Reader,
    before: Annotated[int | None, Query(ge=0, le=LATEST)] = None, limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> schemas.Blocks:  # fmt: skip
    """Return blocks, latest first, each with its run and that run's tasks."""
    with opened(conn_id, ring) as queue:
        found = queue.blocks.list(limit=limit, before=before, entries=True)
    rows = [views.block(block) for block in found]
    tasks = tasks_of(user, {(row.run.dag_id, row.run.run_id) for row in rows if row.run})
    for row in rows:
        if row.run:
            row.tasks = tasks.get((row.run.dag_id, row.run.run_id), [])
    return schemas.Blocks(rows=rows, next=str(found[-1].id) if len(found) == limit else None)


@router.post("/dry-run", dependencies=[Depends(same_site_only)])
def dry_run(conn_id: str, ring: str, body: DryRunRequest, user: Reader) -> schemas.Forecast:
    """Return what the next blocks would take, under the given settings; nothing is changed."""
    limit = None if body.limit is None else Weight(body.limit.time, body.limit.size)
    seed = None if body.seed is None else body.seed.encode()[:64]
    with opened(conn_id, ring) as queue:
        found = queue.inspect.forecast(body.blocks, limit=limit, shares=body.shares, order=body.order, seed=seed)
    return schemas.Forecast(blocks=[views.forecast_block(block) for block in found])


@router.get("/events")
def events(
    conn_id: str, ring: str, user: Reader, kind: Kind | None = None, origin: str | None = None,
    after: Annotated[str, Query(pattern="^[0-9]{0,24}$")] = "", limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> schemas.Events:  # fmt: skip
    """Return events, latest first; continue with `after=next`, even if a page of them is empty."""
    before = min(int(after), (1 << 63) - 1) if after else None
    with opened(conn_id, ring) as queue:
        found, following = queue.inspect.latest_events(before, limit, origin=origin or None, name=kind)
    rows = [views.event(event) for event in found]
    return schemas.Events(rows=rows, next=None if following is None else str(following))
