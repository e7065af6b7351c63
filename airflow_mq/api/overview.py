"""The ring at a glance."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from . import shapes
from .access import Reader
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")
#: How many queues are drawn one by one.
ARCS = 60


@router.get("/overview")
def overview(conn_id: str, ring: str, who: Reader) -> dict[str, Any]:
    """Whose turn it is, who waits, and the latest block."""
    with opened(conn_id, ring) as queue:
        seen, config = queue.glance(ARCS), queue.config
        paused = queue.paused()
    arcs = [shapes.arc(one, is_head=place == 0) for place, one in enumerate(seen.queues)]
    oldest = min((one.oldest for one in seen.queues if one.oldest), default=None)
    return {
        "ring": ring, "order": config.order, "limit": shapes.weight(config.service_weight), "high": config.high,
        "paths": config.paths, "now": shapes.moment(seen.now), "ready": seen.ready, "queues": len(arcs),
        "waiting_messages": sum(one.messages for one in seen.queues),
        "waiting_bytes": sum(one.size for one in seen.queues), "exact": True,
        "in_flight": seen.in_flight, "set_aside": sum(one.set_aside for one in seen.queues), "paused": len(paused),
        "oldest": shapes.moment(oldest), "head": arcs[0]["origin"] if arcs else None, "arcs": arcs,
        "rest": {"queues": 0, "messages": 0, "bytes": 0}, "last_block": None, "version": seen.version,
    }  # fmt: skip
