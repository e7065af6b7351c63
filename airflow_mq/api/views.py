"""Value types of the queue as response schemas, where attributes alone do not suffice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from urllib.parse import quote, urlsplit

from airflow.configuration import conf

from airflow_mq import block_keys
from airflow_mq.core.blob import Reference
from airflow_mq.core.events import Event
from airflow_mq.core.message import message_id
from airflow_mq.core.orders import Entry
from airflow_mq.core.weight import ZERO, Weight, total_weight
from airflow_mq.queue import Block, ForecastBlock, ForecastQueue, Peeked, SetAside

from . import schemas
from .previews import preview

#: Queues that a block lists one by one.
LISTED = 20
#: Queues that a forecast block lists one by one.
LISTED_AHEAD = 200
#: Outcomes that a block counts.
OUTCOMES = ("processed", "failed", "went_back", "set_aside", "expired")
#: Headers that hold no secret; of all others a response contains the name only.
PLAIN_HEADERS = frozenset({"content-type", "content-encoding", "traceparent"})


def block(of: Block) -> schemas.Block:
    """Return a block with the run that planned it; its tasks are added later."""
    return schemas.Block(
        id=of.id, key=of.key, state=of.state, by_hand=of.by_hand, by=of.by, planned_at=of.planned_at,
        ended_at=of.ended_at, deadline=of.deadline, limit=of.limit, predicted=of.predicted, used=of.used,
        messages=of.messages, by_queue=_shares(of.entries), run=run_of(of.key),
        **{outcome: of.result.get(outcome, 0) for outcome in OUTCOMES},
    )  # fmt: skip


def _shares(entries: Sequence[Entry]) -> list[schemas.BlockShare]:
    """Return the largest entries one by one, and the rest as one without an origin."""
    largest = sorted(entries, key=lambda entry: (-max(entry.granted), -entry.messages))
    shares = [schemas.BlockShare.model_validate(entry) for entry in largest[:LISTED] if entry.messages]
    rest = largest[LISTED:]
    if messages := sum(entry.messages for entry in rest):
        granted = total_weight([entry.granted for entry in rest])
        shares.append(schemas.BlockShare(origin=None, priority=None, weight=granted, messages=messages, reason=""))
    return shares


def run_of(key: str | None) -> schemas.Run | None:
    """Return the DAG run in a block's key, if Airflow planned the block."""
    run = block_keys.run_of(key)
    return run and schemas.Run(dag_id=run.dag_id, run_id=run.run_id, url=run_url(*run))


def run_url(dag_id: str, run_id: str) -> str:
    """Return the path of a run's page on this server."""
    root = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{root}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def forecast_block(of: ForecastBlock) -> schemas.ForecastBlock:
    """Return a forecast block; queues with the largest weights come first."""
    taken = sorted((queue for queue in of.queues if queue.messages), key=lambda queue: -max(queue.weight))
    skipped = [queue for queue in of.queues if not queue.messages]
    whole = total_weight([queue.weight for queue in taken])
    return schemas.ForecastBlock(
        n=of.number, order=of.order, limit=of.limit, used=of.planned.plus(of.overhead), messages=of.messages,
        queues=len(taken), by_queue=[_forecast_share(queue, whole) for queue in taken[:LISTED_AHEAD]],
        left_out=[_skipped(queue, of) for queue in skipped[:LISTED_AHEAD]],
    )  # fmt: skip


def _forecast_share(queue: ForecastQueue, whole: Weight) -> schemas.ForecastShare:
    return schemas.ForecastShare(
        origin=queue.origin, priority=queue.priority, weight=queue.weight, messages=queue.messages,
        set_aside=queue.set_aside, reason=queue.reason, share=queue.weight.part_of(whole),
    )  # fmt: skip


def _skipped(queue: ForecastQueue, block: ForecastBlock) -> schemas.SkippedQueue:
    """Return a skipped queue; if its first message is heavier than the block, the reason names the limit."""
    reason = queue.reason
    if queue.needs is not None:
        owner = f", the limit of {block.server}" if block.server is not None else ""
        reason = f"{reason}: its first message needs {queue.needs} of {block.limit}{owner}"
    return schemas.SkippedQueue(origin=queue.origin, priority=queue.priority, reason=reason)


def event(of: Event) -> schemas.Event:
    """Return the outcome of one message."""
    detail = schemas.EventDetail(
        id=None if of.id is None else of.id.hex(), weight=of.weight, success=of.success, error=of.error, why=of.why,
        actor=of.actor, text=of.detail,
    )  # fmt: skip
    return schemas.Event(
        id=str(of.seq), at=None if of.at is None else datetime.fromtimestamp(of.at, timezone.utc), kind=of.name,
        origin=of.origin, priority=of.priority, page=of.page, index=of.index, block=of.block, detail=detail,
    )  # fmt: skip


def set_aside(of: SetAside, most: Weight | None) -> schemas.SetAsideMessage:
    """Return a set-aside message, and whether it fits into `most`."""
    limit = of.limit if of.most_bytes is None or of.limit is not None else Weight(ZERO.time, of.most_bytes)
    return schemas.SetAsideMessage(
        address=of.address, text=str(of.address), id=of.id.hex() if of.id else None, size=of.size, asked=of.weight,
        limit=limit, fits_now=most is not None and (of.weight is None or not of.weight.exceeds(most)),
        reason=of.reason, block=of.block, at=of.at, arrived_at=of.arrived_at, age_seconds=of.age,
        error=of.error or None,
    )  # fmt: skip


def message(of: Peeked) -> schemas.Message:
    """Return a message with a preview of its payload."""
    return schemas.Message(
        address=of.address, text=str(of.address), id=message_id(of.payload).hex(),
        size=of.payload.size if isinstance(of.payload, Reference) else len(of.payload), state=of.state,
        attempts=of.attempts, weight=of.weight, sent_at=of.sent_at, payload=preview(of.payload),
        headers={name: value if name.lower() in PLAIN_HEADERS else "…" for name, value in of.headers.items()},
    )  # fmt: skip
