"""XComs between the tasks of a block; each is checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypedDict, cast

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from typing_extensions import NotRequired

from airflow_mq.engine.rules.errors import MessageQueueError, UnknownBlock
from airflow_mq.links import BLOCK
from airflow_mq.processors import Part, Processors

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_mq import Block, MessageQueue


class PlannedBlock(TypedDict):
    """A block as its plan passes it to the other tasks."""

    id: int
    token: str
    ring: str
    messages: int
    planned: list[int]
    limit: list[int]
    trace: NotRequired[dict[str, str]]


class Summary(TypedDict):
    """A settled block as plain values."""

    block: int
    ring: str
    messages: int
    limit: list[int]
    planned: list[int]
    used: list[int]
    origins: int
    processed: int
    failed: int
    set_aside: int
    returned: int
    expired: int
    #: Messages that left their queues.
    moved: int


def block_as_xcom(queue: MessageQueue, block: Block, trace: Mapping[str, str] | None = None) -> PlannedBlock:
    planned = PlannedBlock(
        id=block.id,
        token=block.token,
        ring=queue.ring,
        messages=block.messages,
        planned=list(block.planned.plus(block.overhead)),
        limit=list(block.limit),
    )
    if trace:
        planned["trace"] = dict(trace)
    return planned


def exchange_at(exchange: str | ObjectStoragePath) -> str:
    """Return the address of an exchange as the job gets it; this task opens it by the connection that it names."""
    from airflow.sdk import ObjectStoragePath

    if not isinstance(exchange, ObjectStoragePath):
        return exchange
    from airflow_mq.spark.exchange import open_by

    return open_by(exchange.fs, exchange.protocol, exchange.path)


def refuse_unknown_tasks(context: Context, **named: str) -> None:
    """Fail if an argument names no task of the DAG: without it, a block is neither processed nor its failures seen."""
    for argument, task_id in named.items():
        if not context["dag"].has_task(task_id):
            raise AirflowFailException(
                f"invalid {argument} {task_id!r}: this DAG has no such task; set it to the task_id of that task, which "
                "in a task group begins with the group's id"
            )


def planned_block(context: Context, plan_task_id: str) -> PlannedBlock:
    """Return the block that a task planned; skip the task if there is none."""
    refuse_unknown_tasks(context, plan_task_id=plan_task_id)
    block = context["ti"].xcom_pull(task_ids=plan_task_id, key=BLOCK)
    if not isinstance(block, Mapping) or not block.get("token"):
        raise AirflowSkipException(f"{plan_task_id} planned no block: there is nothing to process")
    return cast("PlannedBlock", block)


def checked_part(given: Part, processors: Processors) -> Part:
    """Return a part as it came back from an XCom, after a check against the rules."""
    if not isinstance(given, Mapping):
        raise AirflowFailException(
            f"invalid part of a block ({type(given).__name__}): expected one of the parts that a plan returns; map the "
            "task over them (.expand(part=plan.output)), and leave the plan unmapped"
        )
    try:
        names = [processors[name] for name in given["processors"]]
        part, parts, messages = (given[name] for name in ("part", "parts", "messages"))
        whole = all(type(number) is int for number in (part, parts, messages))
        most = max(processor.split for processor in names) if names else 0
        if not (whole and 0 <= part < parts <= most and messages >= 0):
            raise ValueError("its numbers are out of range")
        if any(processor.where != given["where"] for processor in names):
            raise ValueError("its processors run elsewhere")
        shown = str(given["name"])[:200]
    except (KeyError, TypeError, ValueError, MessageQueueError) as error:
        raise AirflowFailException(f"invalid part of a block: {error}; clear the task that planned it") from None
    used = [processor.name for processor in names]
    return Part(name=shown, processors=used, part=part, parts=parts, messages=messages, where=names[0].where)


def refuse_ended(queue: MessageQueue, token: str) -> None:
    """Skip the task if its block was settled or deleted; fail it if the block was released or its lease ran out."""
    try:
        block = queue.blocks.get(token)
    except UnknownBlock:
        raise AirflowSkipException("the block is deleted: plan again to process what returned to its queues") from None
    if block.state == "settled":
        raise AirflowSkipException(
            f"block {block.id} was settled before: messages without an outcome are back in their queues; a later block "
            "takes them, or clear the task that plans"
        )
    late = (block.ended_at or datetime.now(timezone.utc)) >= block.deadline
    if block.state == "released" or late:
        ended = f"its lease ran out at {block.deadline:%H:%M:%S} UTC" if late else "it was released"
        advice = ". Give blocks a longer lease, or the task more slots" if late else ""
        raise AirflowFailException(
            f"block {block.id} takes no more outcomes: {ended}; messages without an outcome are back in their queues, "
            f"and a later block takes them{advice}"
        )
