"""What is told, as JSON: plain values only, and text that was sent stays text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow_mq.core.message import Address
from airflow_mq.core.weight import Weight
from airflow_mq.queue import QueueGlance


def weight(value: Weight | Sequence[int] | None) -> dict[str, int] | None:
    """A weight."""
    return None if value is None else {"time": int(value[0]), "size": int(value[1])}


def moment(value: datetime | None) -> str | None:
    """A time."""
    return None if value is None else value.isoformat()


def address(value: Address) -> dict[str, Any]:
    """Where a message lies."""
    return {"origin": value.origin, "page": value.page, "index": value.index, "priority": value.priority}


def arc(one: QueueGlance, *, is_head: bool) -> dict[str, Any]:
    """A queue's part of the ring."""
    return {
        "origin": one.origin, "priority": one.priority, "messages": one.messages, "bytes": one.size, "more": one.more,
        "in_flight": one.in_flight, "paused": one.passed_by == "paused", "is_head": is_head,
    }  # fmt: skip
