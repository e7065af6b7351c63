"""Blocks with their runs and tasks, and the forecast of the next blocks: schemas and routes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from airflow_mq.engine.queue.blocks import block as planned
from airflow_mq.engine.queue.inspect import forecast
from airflow_mq.engine.rules import weight as rules
from airflow_mq.engine.rules.orders import Entry
from airflow_mq.engine.store.rows import LATEST

from .access import Reader, same_site_only
from .runs import Run, Task, run_of, tasks_of
from .schemas import Body, Priority, Schema, Weight
from .stores import opened

router = APIRouter()

#: Queues that a block lists one by one, and a forecast block.
LISTED, LISTED_AHEAD = 20, 200


class BlockShare(Schema):
    """Part of a block that one queue received; without an origin, that all unlisted queues received."""

    origin: str | None
    priority: Priority | None
    weight: Weight
    messages: int
    reason: str


class Block(Schema):
    """A block, and the run that planned it."""

    id: int
    key: str | None
    state: str
    by_hand: bool
    by: str
    planned_at: datetime
    ended_at: datetime | None
    deadline: datetime
    limit: Weight
    predicted: Weight
    used: Weight | None
    messages: int
    #: How many messages have each fate; empty while it lives.
    result: dict[str, int]
    by_queue: list[BlockShare]
    run: Run | None
    tasks: list[Task]


class Blocks(Schema):
    """Blocks, latest first."""

    rows: list[Block]
    next: str | None


class ForecastShare(Schema):
    """Part of a forecast block that a queue would receive, or the reason why it receives nothing."""

    origin: str
    priority: Priority
    weight: Weight
    messages: int
    set_aside: int
    reason: str
    #: The weight of its first message, if that is heavier than the block.
    needs: Weight | None
    share: float


class ForecastBlock(Schema):
    """A block that would be planned next; with `server`, by this DAG or program and under its limit."""

    number: int
    server: str | None
    order: str
    limit: Weight
    predicted: Weight
    messages: int
    queues: int
    by_queue: list[ForecastShare]
    #: The first queues that get nothing, and how many there are.
    left_out: list[ForecastShare]
    left_out_queues: int


class Forecast(Schema):
    """The next blocks."""

    blocks: list[ForecastBlock]


class WeightAsked(Body):
    """A weight in a request."""

    time: int = Field(ge=0, le=rules.LARGEST)
    size: int = Field(ge=0, le=rules.LARGEST)


class DryRunRequest(Body):
    """Settings of a forecast."""

    limit: WeightAsked | None = None
    shares: dict[str, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(default_factory=dict, max_length=1_000)
    order: Literal["deficit", "rotation", "shuffle"] | None = None
    blocks: int = Field(1, ge=1, le=20)
    seed: str | None = Field(None, min_length=1, max_length=32)


@router.get("/blocks")
def blocks(
    conn_id: str,
    ring: str,
    user: Reader,
    before: Annotated[int | None, Query(ge=0, le=LATEST)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Blocks:
    """Return blocks, latest first, each with its run and that run's tasks."""
    with opened(conn_id, ring) as queue:
        found = queue.blocks.list(limit=limit + 1, before=before, entries=True)
    rows = [block_of(state) for state in found[:limit]]
    tasks = tasks_of(user, {(row.run.dag_id, row.run.run_id) for row in rows if row.run})
    for row in rows:
        if row.run:
            row.tasks = tasks.get((row.run.dag_id, row.run.run_id), [])
    return Blocks(rows=rows, next=str(found[limit - 1].id) if len(found) > limit else None)


def block_of(state: planned.Block) -> Block:
    """Return a block with the run that planned it, without that run's tasks."""
    shown = "closed" if state.is_closed else state.state
    return Block.of(state, state=shown, by_queue=_shares(state.entries), run=run_of(state.key), tasks=[])


def _shares(entries: Sequence[Entry]) -> list[BlockShare]:
    """Return the largest entries one by one, and the rest as one without an origin."""
    largest = sorted(entries, key=lambda entry: (-max(entry.granted), -entry.messages))
    shares = [BlockShare.of(entry, weight=entry.granted) for entry in largest[:LISTED] if entry.messages]
    rest = largest[LISTED:]
    if messages := sum(entry.messages for entry in rest):
        granted = rules.total_weight([entry.granted for entry in rest])
        shares.append(BlockShare(origin=None, priority=None, weight=granted, messages=messages, reason=""))
    return shares


@router.post("/dry-run", dependencies=[Depends(same_site_only)])
def dry_run(conn_id: str, ring: str, body: DryRunRequest, user: Reader) -> Forecast:
    """Return what the next blocks would take, under the given settings; nothing is changed."""
    limit = None if body.limit is None else rules.Weight(body.limit.time, body.limit.size)
    seed = None if body.seed is None else body.seed.encode()
    with opened(conn_id, ring) as queue:
        # The very next block is exact; of others, it matters when they come.
        every = 0 if body.blocks == 1 else None
        changes = {} if body.order is None else {"order": body.order}
        found = queue.inspect.forecast(body.blocks, limit=limit, shares=body.shares, seed=seed, every=every, **changes)
    return Forecast(blocks=[_forecast_block(block) for block in found])


def _forecast_block(block: forecast.ForecastBlock) -> ForecastBlock:
    """Return a forecast block; queues with the largest weights come first."""
    taken = sorted((queue for queue in block.queues if queue.messages), key=lambda queue: -max(queue.weight))
    skipped = [queue for queue in block.queues if not queue.messages]
    total = rules.total_weight([queue.weight for queue in taken])
    return ForecastBlock.of(
        block,
        queues=len(taken),
        left_out_queues=len(skipped),
        by_queue=[ForecastShare.of(queue, share=queue.weight.part_of(total)) for queue in taken[:LISTED_AHEAD]],
        left_out=[ForecastShare.of(queue, share=0.0) for queue in skipped[:LISTED_AHEAD]],
    )
