"""Blocks as they were, with the tasks that worked for them, and the next ones as they would be; and events."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_mq.core.weight import LARGEST, Weight, total_weight
from airflow_mq.queue import ForeseenBlock, ForeseenQueue
from airflow_mq.store.rows import LATEST

from . import answers, shapes
from .access import Reader
from .guard import meant
from .stores import opened
from .tasks import tasks_of

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")

#: Queues of a foreseen block that are told one by one.
MOST_QUEUES = 200
Kind = Literal[
    "AttemptsExhausted", "Discarded", "Executed", "Expired", "OverweightEnqueued", "PageReaped", "Processed",
    "ProcessingFailed", "Rejudged", "Swept", "Transferred", "WentBack",
]  # fmt: skip


class WeightAsked(BaseModel):
    """A weight in a request."""

    model_config = ConfigDict(extra="forbid")
    time: int = Field(ge=0, le=LARGEST)
    size: int = Field(ge=0, le=LARGEST)


class DryRun(BaseModel):
    """Under what is looked ahead."""

    model_config = ConfigDict(extra="forbid")
    limit: WeightAsked | None = None
    shares: dict[str, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(default_factory=dict, max_length=1_000)
    order: Literal["deficit", "rotation", "shuffle"] | None = None
    blocks: int = Field(1, ge=1, le=20)
    seed: str | None = Field(None, min_length=1, max_length=32)


@router.get("/blocks")
def blocks(
    conn_id: str, ring: str, who: Reader,
    before: Annotated[int | None, Query(ge=0, le=LATEST)] = None, limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> answers.Blocks:  # fmt: skip
    """Blocks, the latest first, each with its run and the tasks of it."""
    with opened(conn_id, ring) as queue:
        found = queue.block_glances(before, limit)
    rows = [shapes.block(one) for one in found]
    runs = {(run["dag_id"], run["run_id"]) for one in rows if (run := one["run"])}
    tasks = tasks_of(who, runs)
    for one in rows:
        if one["run"]:
            one["tasks"] = tasks.get((one["run"]["dag_id"], one["run"]["run_id"]), [])
    return {"rows": rows, "next": str(found[-1].id) if len(found) == limit else None}


@router.post("/dry-run", dependencies=[Depends(meant)])
def dry_run(conn_id: str, ring: str, body: DryRun, who: Reader) -> answers.Forecast:
    """What the next blocks would take, under other settings if they are said; nothing of it is done."""
    limit = None if body.limit is None else Weight(body.limit.time, body.limit.size)
    seed = None if body.seed is None else body.seed.encode()[:64]
    with opened(conn_id, ring) as queue:
        found = queue.forecast(body.blocks, limit=limit, shares=body.shares, order=body.order, seed=seed)
    return {"blocks": [_foreseen(one) for one in found]}


def _foreseen(one: ForeseenBlock) -> answers.ForeseenBlock:
    taken = sorted((its for its in one.queues if its.messages), key=lambda its: -max(its.weight))
    whole = total_weight([its.weight for its in taken])
    left_out: list[answers.LeftOut] = [
        {"origin": its.origin, "priority": shapes.priority(its.priority), "reason": _left_out(its, one)}
        for its in one.queues
        if not its.messages
    ]
    return {
        "n": one.number, "order": one.order, "limit": shapes.weight(one.limit),
        "used": shapes.weight(one.planned.plus(one.overhead)), "messages": one.messages, "queues": len(taken),
        "by_queue": [
            {
                "origin": its.origin, "priority": shapes.priority(its.priority), "weight": shapes.weight(its.weight),
                "messages": its.messages, "set_aside": its.set_aside, "reason": its.reason,
                "share": its.weight.part_of(whole),
            }
            for its in taken[:MOST_QUEUES]
        ],
        "left_out": left_out[:MOST_QUEUES],
    }  # fmt: skip


def _left_out(its: ForeseenQueue, block: ForeseenBlock) -> str:
    """Return why a block stops at a queue; where its first message is heavier than the block, with the limit."""
    if its.needs is None:
        return its.reason
    whose = f", the limit of {block.server}" if block.server is not None else ""
    return f"{its.reason}: its first message needs {its.needs} of {block.limit}{whose}"


@router.get("/events")
def events(
    conn_id: str, ring: str, who: Reader, kind: Kind | None = None, origin: str | None = None,
    after: Annotated[str, Query(pattern="^[0-9]{0,24}$")] = "", limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> answers.Events:  # fmt: skip
    """What became of messages, the latest first; go on with what `next` says, also where a page of them is empty."""
    before = min(int(after), (1 << 63) - 1) if after else None
    with opened(conn_id, ring) as queue:
        found, following = queue.recent_events(before, limit, origin=origin or None, name=kind)
    return {"rows": [shapes.event(one) for one in found], "next": None if following is None else str(following)}
