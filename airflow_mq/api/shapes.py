"""What is told, as JSON: plain values only. What was sent stays text, whatever it looks like."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, NoReturn, cast, overload
from urllib.parse import quote, urlsplit

from airflow.configuration import conf

from airflow_mq.core.blob import Reference
from airflow_mq.core.events import Event
from airflow_mq.core.message import Address
from airflow_mq.core.weight import ZERO, Weight
from airflow_mq.queue import BlockGlance, Peeked, QueueGlance, SetAside

from . import answers

#: How much of a message is shown.
SHOWN = 4096
#: Levels of JSON that are told as such.
DEEPEST = 100
#: How many queues of a block are told one by one.
QUEUES = 20
#: Headers that hold no secret by what they are; of others only the name is told.
PLAIN_HEADERS = frozenset({"content-type", "content-encoding", "traceparent"})


@overload
def weight(value: Weight | Sequence[int]) -> answers.Weight: ...
@overload
def weight(value: Weight | Sequence[int] | None) -> answers.Weight | None: ...
def weight(value: Weight | Sequence[int] | None) -> answers.Weight | None:
    """A weight."""
    return None if value is None else {"time": int(value[0]), "size": int(value[1])}


@overload
def moment(value: datetime) -> str: ...
@overload
def moment(value: datetime | None) -> str | None: ...
def moment(value: datetime | None) -> str | None:
    """A time."""
    return None if value is None else value.isoformat()


def address(value: Address) -> answers.Address:
    """Where a message lies."""
    return {
        "origin": value.origin, "page": value.page, "index": value.index, "priority": priority(value.priority),
    }  # fmt: skip


def priority(name: str) -> answers.Priority:
    """A priority, as one of those that there are."""
    return cast("answers.Priority", name)


def arc(one: QueueGlance, *, is_head: bool) -> answers.Arc:
    """A queue's part of the ring."""
    return {
        "origin": one.origin, "priority": priority(one.priority), "messages": one.messages, "bytes": one.size,
        "more": one.more, "in_flight": one.in_flight, "paused": one.paused, "is_head": is_head,
    }  # fmt: skip


def block(one: BlockGlance) -> answers.Block:
    """A block, and the run of Airflow's that planned it."""
    largest = sorted(one.entries, key=lambda entry: (-max(entry.granted), -entry.messages))
    told: list[answers.Taken] = [
        {"origin": entry.origin, "priority": priority(entry.priority), "weight": weight(entry.granted),
         "messages": entry.messages, "reason": entry.reason}
        for entry in largest[:QUEUES] if entry.messages
    ]  # fmt: skip
    rest, count = ZERO, 0
    for entry in largest[QUEUES:]:
        rest, count = rest.plus(entry.granted), count + entry.messages
    if count:
        told.append({"origin": None, "priority": None, "weight": weight(rest), "messages": count, "reason": ""})
    result = one.result
    return {
        "id": one.id, "key": one.key, "state": one.state, "by_hand": one.by_hand, "by": one.by,
        "planned_at": moment(one.planned_at), "ended_at": moment(one.ended_at), "deadline": moment(one.deadline),
        "limit": weight(one.limit), "predicted": weight(one.planned), "used": weight(one.used),
        "messages": one.messages, "processed": result.get("processed", 0), "failed": result.get("failed", 0),
        "went_back": result.get("went_back", 0), "set_aside": result.get("set_aside", 0),
        "expired": result.get("expired", 0), "by_queue": told, "run": run_of(one.key), "tasks": [],
    }  # fmt: skip


def run_of(key: str | None) -> answers.Run | None:
    """The run that planned a block under this key, if it was one of Airflow's."""
    dag_id, first, rest = (key or "").partition("/")
    run_id, last, task_id = rest.rpartition("/")
    if not (first and last and dag_id and run_id and task_id):
        return None
    return {"dag_id": dag_id, "run_id": run_id, "url": run_url(dag_id, run_id)}


def run_url(dag_id: str, run_id: str) -> str:
    """Where Airflow's UI shows a run, on this server."""
    root = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{root}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def event(one: Event) -> answers.Event:
    """What became of a message."""
    detail: answers.EventDetail = {
        "id": None if one.id is None else one.id.hex(), "weight": weight(one.weight), "success": one.success,
        "error": one.error, "why": one.why, "who": one.who, "text": one.detail,
    }  # fmt: skip
    at = None if one.at is None else datetime.fromtimestamp(one.at, timezone.utc).isoformat()
    return {
        "id": str(one.seq), "at": at, "kind": one.name, "origin": one.origin,
        "priority": priority(one.priority), "page": one.page, "index": one.index, "block": one.block, "detail": detail,
    }  # fmt: skip


def set_aside(one: SetAside, most: Weight | None) -> answers.Aside:
    """A message that waits for a person."""
    limit = weight(one.limit)
    if limit is None and one.most_bytes is not None:
        limit = {"time": 0, "size": one.most_bytes}
    fits = most is not None and (one.weight is None or not one.weight.exceeds(most))
    return {
        "address": address(one.address), "text": str(one.address), "id": one.id.hex() if one.id else None,
        "size": one.size, "asked": weight(one.weight), "limit": limit, "fits_now": fits, "reason": one.reason,
        "block": one.block, "at": moment(one.at), "arrived_at": moment(one.arrived_at), "age_seconds": one.age,
        "error": one.error or None,
    }  # fmt: skip


def message(one: Peeked, id_: bytes) -> answers.Message:
    """A message that was looked at: a part of it, as bytes and as what they may mean."""
    return {
        "address": address(one.address), "text": str(one.address), "id": id_.hex(), "size": _size(one.payload),
        "state": one.state, "attempts": one.attempts, "weight": weight(one.weight), "sent_at": moment(one.sent_at),
        "not_before": None, "expires": None,
        "headers": {name: value if name.lower() in PLAIN_HEADERS else "…" for name, value in one.headers.items()},
        "payload": payload(one.payload),
    }  # fmt: skip


def _size(data: bytes) -> int:
    return data.size if isinstance(data, Reference) else len(data)


def payload(data: bytes) -> answers.Payload:
    """The beginning of a payload, in hexadecimal, and as text and JSON where it is that."""
    if isinstance(data, Reference):
        return {"shown": 0, "truncated": True, "text": None, "json": None, "hex": "", "kept_apart": data.hash.hex()}
    shown = data[:SHOWN]
    text = _text(shown, len(shown) < len(data))
    return {
        "shown": len(shown), "truncated": len(shown) < len(data), "text": text,
        "json": _json(text) if text is not None and len(shown) == len(data) else None, "hex": shown.hex(),
        "kept_apart": None,
    }  # fmt: skip


def _text(data: bytes, cut: bool) -> str | None:
    for end in range(len(data), max(len(data) - (4 if cut else 1), -1), -1):
        # A character may have been cut in two.
        try:
            return data[:end].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def _json(text: str) -> Any:
    """What a text says as JSON, if our answer can say the same; there is no need to guess at anything else."""
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return None if _is_deep(found) else found


def _is_deep(value: Any) -> bool:
    """Whether it has more levels than what writes our answers goes down."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            part
            for one in level
            if isinstance(one, (dict, list))
            for part in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
