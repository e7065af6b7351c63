"""The ring at a glance, and how fair it was."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, Query

from airflow_mq.queue import MessageQueue, RingGlance, Survey

from . import answers, shapes
from .access import Reader
from .counting import counted
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")
#: How many queues are drawn one by one.
ARCS = 60
#: Seconds that the first answer waits for exact totals.
WAIT = 0.03
#: How many set-aside messages are counted.
MOST_ASIDE = 10_000
#: How many queues are looked at for what they were promised.
LOOKED_AT = 200


@router.get("/overview")
def overview(conn_id: str, ring: str, who: Reader) -> answers.Overview:
    """Whose turn it is, who waits, and the latest block. Totals of a large ring are exact at the second look."""
    with opened(conn_id, ring) as queue:
        seen, config = queue.glance(ARCS), queue.config
        survey = counted(conn_id, queue, WAIT)
        paused, asides = len(queue.paused()), queue.count_set_aside(MOST_ASIDE)
        last = queue.block_glances(limit=1)
    totals = _totals(seen, survey)
    arcs = [shapes.arc(one, is_head=place == 0) for place, one in enumerate(seen.queues)]
    return {
        "ring": ring, "order": config.order, "limit": shapes.weight(config.service_weight), "high": config.high,
        "paths": config.paths, "now": shapes.moment(seen.now), "ready": seen.ready, **totals,
        "in_flight": seen.in_flight, "set_aside": asides, "paused": paused,
        "oldest": shapes.moment(min((one.oldest for one in seen.queues if one.oldest), default=None)),
        "head": arcs[0]["origin"] if arcs else None, "arcs": arcs, "rest": _rest(seen, totals),
        "last_block": shapes.block(last[0]) if last else None, "version": seen.version,
    }  # fmt: skip


class _Totals(TypedDict):
    queues: int
    waiting_messages: int
    waiting_bytes: int
    exact: bool


def _totals(seen: RingGlance, survey: Survey) -> _Totals:
    """Of all queues; at least what is seen, where they are still being counted."""
    return {
        "queues": max(len(survey.depths), len(seen.queues)),
        "waiting_messages": max(survey.messages, sum(one.messages for one in seen.queues)),
        "waiting_bytes": max(survey.size, sum(one.size for one in seen.queues)),
        "exact": survey.done and not survey.cut_short,
    }


def _rest(seen: RingGlance, totals: _Totals) -> answers.Rest:
    return {
        "queues": totals["queues"] - len(seen.queues),
        "messages": totals["waiting_messages"] - sum(one.messages for one in seen.queues),
        "bytes": totals["waiting_bytes"] - sum(one.size for one in seen.queues),
    }


@router.get("/fairness")
def fairness(
    conn_id: str, ring: str, who: Reader, blocks: Annotated[int, Query(ge=1, le=500)] = 50
) -> answers.Fairness:
    """What each queue was promised and got of the latest blocks, the one that was wronged most first."""
    with opened(conn_id, ring) as queue:
        told = queue.fairness(blocks, most=_few(queue))
    rows: list[answers.Fair] = [
        {
            "origin": one.origin, "priority": shapes.priority(one.priority), "share": one.share,
            "promised": one.promised, "received": one.received, "error": one.error,
            "longest_wait": one.longest_wait, "late": one.late, "blocks": one.contended,
        }
        for one in sorted(told.origins, key=lambda one: -abs(one.error or 0.0))[:1_000]
    ]  # fmt: skip
    return {"rows": rows, "jain": told.jain, "blocks": told.blocks, "queues": len(told.origins)}


def _few(queue: MessageQueue) -> int:
    """All that wait are looked at where a block has met them before: to meet the others may take very long."""
    return LOOKED_AT if queue.glance(1).ready >= LOOKED_AT or not queue.has_many_news() else 0
