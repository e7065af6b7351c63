"""The ring: overview, fairness and integrity check, as schemas and routes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from threading import Lock
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query

from airflow_mq.engine.queue.inspect.queues import QueueState
from airflow_mq.engine.rules.priority import book_name
from airflow_mq.engine.store.books import QueueDepth

from .access import Reader, Writer, same_site_only
from .blocks import Block, block_of
from .counting import counted
from .runs import paused_by
from .schemas import Priority, Remedy, Schema, Weight
from .stores import opened

router = APIRouter()

#: Seconds that the first response waits for exact totals.
WAIT = 0.03
#: Waiting queues whose promised share is computed.
WAITING = 200
#: Rows of the fairness table, and violations that a response lists.
MOST_ROWS = 1_000
#: Seconds that a check may take.
CHECKING = 600.0
_checking = Lock()


class Arc(Schema):
    """A queue's part of the drawn ring; with `more`, its figures are lower bounds."""

    origin: str
    priority: Priority
    messages: int
    size: int
    more: bool
    in_flight: int
    paused: bool


class Rest(Schema):
    """Totals of the queues that are not drawn."""

    queues: int
    messages: int
    size: int


class Served(Schema):
    """The latest plan or service of the ring, and when the next one is expected: a past time if it is late."""

    ever: bool
    last: datetime | None
    server: str | None
    next: datetime | None
    #: Whether several DAGs or programs service the ring; a forecast is of one of them.
    several: bool


class Overdue(Schema):
    """A plan or a service that should have come, and what to run or look at."""

    sentence: str
    remedy: Remedy


class Overview(Schema):
    """The ring: next queue, waiting queues, totals, and the latest block.

    Waiting messages include those in flight, and exclude set-aside and delayed ones. `due` is when the first delayed
    message joins its queue. `overdue` names the plans that should have come by now.
    """

    ring: str
    order: str
    limit: Weight | None
    paths: bool
    now: datetime
    ready: int
    queues: int
    waiting_messages: int
    waiting_bytes: int
    exact: bool
    in_flight: int
    set_aside: int
    paused: int
    oldest: datetime | None
    due: datetime | None
    arcs: list[Arc]
    rest: Rest
    last_block: Block | None
    served: Served
    overdue: list[Overdue]


class OriginFairness(Schema):
    """A queue's promised and received share of the latest blocks."""

    origin: str
    priority: Priority
    share: int
    promised: float | None
    received: float | None
    error: float | None
    longest_wait: int
    late: int
    contended: int


class Fairness(Schema):
    """Fairness of the latest blocks; the rows with the largest error come first.

    If `partial`, more queues wait than were compared, and promised shares are upper bounds.
    """

    rows: list[OriginFairness]
    jain: float | None
    blocks: int
    queues: int
    partial: bool


class Violation(Schema):
    """An invariant that does not hold."""

    what: str
    where: str


class Checked(Schema):
    """Result of a check: the first violations, and their total number."""

    violations: list[Violation]
    count: int
    took_seconds: float


@router.get("/overview")
def overview(conn_id: str, ring: str, user: Reader) -> Overview:
    """Return the next queue, the waiting queues and the latest block.

    The totals of a large ring are lower bounds at first, and exact (`exact`) once all queues are counted.
    """
    with opened(conn_id, ring) as queue:
        state, config = queue.inspect.ring(60), queue.config
        count = counted(conn_id, queue, WAIT)
        paused, set_aside = len(queue.admin.paused()), queue.set_aside.count(10_000)
        latest = queue.blocks.list(limit=1, entries=True)
        servicing = queue.inspect.servicing(paused_by(user))
    depths = dict(count.depths)
    waiting = [depth for depth in depths.values() if depth.waiting]
    arcs = [_arc(arc, depths) for arc in state.queues]
    drawn_messages, drawn_bytes = sum(arc.messages for arc in arcs), sum(arc.size for arc in arcs)
    messages = max(sum(depth.waiting for depth in waiting), drawn_messages)
    size = max(sum(depth.size - depth.set_aside_size for depth in waiting), drawn_bytes)
    ready = max(len(waiting), len(arcs))
    last = servicing.plans[0] if servicing.plans else None
    return Overview.of(
        state,
        ring=ring,
        order=config.order,
        limit=config.service_weight,
        paths=config.paths,
        ready=ready,
        queues=max(len(depths), len(arcs)),
        waiting_messages=messages,
        waiting_bytes=size,
        exact=count.exact,
        set_aside=set_aside,
        paused=paused,
        oldest=min((arc.oldest for arc in state.queues if arc.oldest), default=None),
        arcs=arcs,
        rest=Rest(queues=ready - len(arcs), messages=messages - drawn_messages, size=size - drawn_bytes),
        last_block=block_of(latest[0]) if latest else None,
        served=Served(
            ever=servicing.ever,
            last=last and last.at,
            server=last and last.title,
            next=servicing.expected(),
            several=len(servicing.servers) > 1,
        ),
        # One for each DAG that some origin waits for.
        overdue=servicing.of_queues(state.queues)[:3],
    )


def _arc(state: QueueState, depths: Mapping[str, QueueDepth]) -> Arc:
    """Return the drawn part of a queue, without its set-aside messages."""
    depth = depths.get(book_name(state.origin, state.priority))
    aside_size = 0 if depth is None else depth.set_aside_size
    return Arc.of(state, messages=max(state.messages - state.set_aside, 0), size=max(state.size - aside_size, 0))


@router.get("/fairness")
def fairness(conn_id: str, ring: str, user: Reader, blocks: Annotated[int, Query(ge=1, le=500)] = 50) -> Fairness:
    """Return each queue's promised and received share of the latest blocks, largest error first."""
    with opened(conn_id, ring) as queue:
        found = queue.inspect.fairness(blocks, most=WAITING)
    worst = sorted(found.origins, key=lambda origin: -abs(origin.error or 0.0))[:MOST_ROWS]
    return Fairness.of(found, rows=worst, queues=len(found.origins))


@router.post("/check", dependencies=[Depends(same_site_only)])
def check(conn_id: str, ring: str, user: Writer) -> Checked:
    """Check every invariant of the ring. A check reads the whole store, so only one runs at a time."""
    if not _checking.acquire(blocking=False):
        raise HTTPException(409, "another check is running; wait until it ends")
    began = time.monotonic()
    try:
        with opened(conn_id, ring, user.name, CHECKING) as queue:
            found = queue.check()
    finally:
        _checking.release()
    took = round(time.monotonic() - began, 3)
    return Checked.of(None, violations=found[:MOST_ROWS], count=len(found), took_seconds=took)
