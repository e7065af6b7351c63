"""Routes of the ring: overview and fairness."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from airflow_mq.queue import MessageQueue

from . import schemas, views
from .access import Reader
from .counting import counted
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")
#: Queues that are drawn one by one.
ARCS = 60
#: Seconds that the first response waits for exact totals.
WAIT = 0.03
#: Upper bound of the number of set-aside messages.
MOST_SET_ASIDE = 10_000
#: Waiting queues whose promised share is computed.
LOOKED_AT = 200
#: Rows of the fairness table.
MOST_ROWS = 1_000


@router.get("/overview")
def overview(conn_id: str, ring: str, user: Reader) -> schemas.Overview:
    """Return the next queue, the waiting queues and the latest block.

    The totals of a large ring are lower bounds at first, and exact (`exact`) once all queues are counted.
    """
    with opened(conn_id, ring) as queue:
        seen, config = queue.inspect.ring(ARCS), queue.config
        survey = counted(conn_id, queue, WAIT)
        paused, set_aside = len(queue.admin.paused()), queue.set_aside.count(MOST_SET_ASIDE)
        latest = queue.blocks.list(limit=1, entries=True)
    queues = max(len(survey.depths), len(seen.queues))
    drawn_messages, drawn_bytes = sum(arc.messages for arc in seen.queues), sum(arc.size for arc in seen.queues)
    messages, size = max(survey.messages, drawn_messages), max(survey.size, drawn_bytes)
    arcs = [schemas.Arc.model_validate(arc) for arc in seen.queues]
    for arc in arcs[:1]:
        arc.is_head = True
    return schemas.Overview(
        ring=ring, order=config.order, limit=config.service_weight, high=config.high, paths=config.paths, now=seen.now,
        ready=seen.ready, queues=queues, waiting_messages=messages, waiting_bytes=size,
        exact=survey.done and not survey.cut_short, in_flight=seen.in_flight, set_aside=set_aside, paused=paused,
        oldest=min((arc.oldest for arc in seen.queues if arc.oldest), default=None),
        head=arcs[0].origin if arcs else None, arcs=arcs,
        rest=schemas.Rest(queues=queues - len(arcs), messages=messages - drawn_messages, bytes=size - drawn_bytes),
        last_block=views.block(latest[0]) if latest else None, version=seen.version,
    )  # fmt: skip


@router.get("/fairness")
def fairness(
    conn_id: str, ring: str, user: Reader, blocks: Annotated[int, Query(ge=1, le=500)] = 50
) -> schemas.Fairness:
    """Return each queue's promised and received share of the latest blocks, largest error first."""
    with opened(conn_id, ring) as queue:
        found = queue.inspect.fairness(blocks, most=_waiting_counted(queue))
    worst = sorted(found.origins, key=lambda origin: -abs(origin.error or 0.0))[:MOST_ROWS]
    rows = [schemas.OriginFairness.model_validate(origin) for origin in worst]
    return schemas.Fairness(rows=rows, jain=found.jain, blocks=found.blocks, queues=len(found.origins))


def _waiting_counted(queue: MessageQueue) -> int:
    """Return how many waiting queues to include: none if many are new, because loading those takes long."""
    return LOOKED_AT if queue.inspect.ring(1).ready >= LOOKED_AT or not queue.inspect.has_many_newcomers() else 0
