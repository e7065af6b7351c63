"""What the tasks of a block tell each other, by XCom, of which nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_mq.core.errors import MessageQueueError, UnknownBlock
from airflow_mq.links import BLOCK
from airflow_mq.processors import Part, Processors

if TYPE_CHECKING:
    from airflow_mq import Block, MessageQueue


def told(queue: MessageQueue, block: Block, trace: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A block as its plan tells the other tasks of it; with its trace, if it has one."""
    return {
        "id": block.id,
        "token": block.token,
        "ring": queue.ring,
        "messages": block.messages,
        "planned": list(block.planned.plus(block.overhead)),
        "limit": list(block.limit),
        **({"trace": dict(trace)} if trace else {}),
    }


def planned_block(context: Any, plan_task_id: str) -> Mapping[str, Any]:
    """The block that a plan told of."""
    said = context["ti"].xcom_pull(task_ids=plan_task_id, key=BLOCK)
    if not isinstance(said, Mapping) or not said.get("token"):
        raise AirflowSkipException(f"{plan_task_id} planned no block; there is nothing to process")
    return said


def processors_of(given: Processors | str) -> Processors:
    """Processors as an author gave them, or as they are kept with the DAG."""
    return given if isinstance(given, Processors) else Processors.from_json(given)


def checked_part(given: Any, processors: Processors) -> Part:
    """A part as it came back from an XCom, of which nothing is taken on trust."""
    try:
        names = [processors[name] for name in given["processors"]]
        part, parts, messages = (given[name] for name in ("part", "parts", "messages"))
        whole = all(type(number) is int for number in (part, parts, messages))
        if not (names and whole and 0 <= part < parts <= max(one.split for one in names) and messages >= 0):
            raise ValueError("its numbers cannot be")
        if any(one.where != given["where"] for one in names):
            raise ValueError("its processors run elsewhere")
        shown = str(given["name"])[:200]
    except (KeyError, TypeError, ValueError, MessageQueueError) as error:
        raise AirflowFailException(f"this is no part of a block: {error}; clear the task that planned it") from None
    return Part(
        name=shown, processors=[one.name for one in names], part=part, parts=parts, messages=messages,
        where=names[0].where,
    )  # fmt: skip


def refuse_ended(queue: MessageQueue, token: str) -> None:
    """Skip what belongs to a block that has ended; fail if it ended before its time."""
    try:
        block = queue.blocks.get(token)
    except UnknownBlock:
        raise AirflowSkipException("the block is gone; plan again to process what went back to its queues") from None
    if block.state == "settled":
        raise AirflowSkipException(
            f"block {block.id} was settled before; what it did not process is back in its queues: a later block "
            "takes it, or clear the task that plans"
        )
    if block.state == "released" or block.deadline < datetime.now(timezone.utc):
        raise AirflowFailException(
            f"block {block.id} was not begun before its lease ran out at {block.deadline:%H:%M:%S} UTC; its messages "
            "are back in their queues, and a later block takes them. Give blocks a longer lease, or the task more slots"
        )
