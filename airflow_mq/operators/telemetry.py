"""Metrics, traces and lineage of the tasks of a block; errors in them never fail a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime as clock
from datetime import timezone
from typing import TYPE_CHECKING

from airflow_mq import lineage, metrics, tracing
from airflow_mq.engine.rules.outcome import Done, Outcome, Overweight, Transferred, Yield
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.tracing import LINKS, OUTCOMES, Carrier, harmless

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_mq import Block, MessageQueue
    from airflow_mq.engine.queue import MessageHeaders
    from airflow_mq.engine.rules.settle import Answers
    from airflow_mq.operators.blocks.xcoms import PlannedBlock, Summary
    from airflow_mq.processors import Part, Processors


def planned(queue: MessageQueue, block: Block, began: int) -> Carrier:
    """Record a planned block; return the context of its trace, for the tasks that follow."""
    metrics.planned(queue, block, (tracing.now() - began) / 1e9)
    if not queue.session.traces:
        return {}
    carried = harmless(queue.inspect.headers)(block, LINKS, tracing.is_traced) or []
    links = list({message.headers["traceparent"]: message.headers for message in carried}.values())
    attributes = {
        **_attributes(queue, "plan", block.id),
        "messaging.batch.message_count": block.messages,
        "airflow_mq.planned.time": block.planned.time,
        "airflow_mq.planned.size": block.planned.size,
    }
    return tracing.record(f"plan {queue.ring}", began, attributes, kind="CONSUMER", links=links) or {}


@contextmanager
def processing(queue: MessageQueue, part: Part, block: PlannedBlock) -> Iterator[Carrier]:
    """Open a span around the processing of a part; yield its context, for another process."""
    attributes = {
        **_attributes(queue, "process", block["id"]),
        "messaging.batch.message_count": part["messages"],
        "airflow_mq.part": part["name"],
    }
    name, on = f"process {queue.ring}", queue.session.traces
    with tracing.span(name, attributes, on=on, kind="CONSUMER", parent=block.get("trace")) as carrier:
        yield carrier


@harmless
def taken(
    queue: MessageQueue, token: str, processors: Processors | None = None, part: Part | None = None
) -> lineage.Touched | None:
    """Return the queues from which a block, or a part of it, takes messages, if lineage is on."""
    if not lineage.is_wanted():
        return None
    claims = [(claim.whose, claim.messages) for claim in queue.blocks.get(token).claims if claim.messages]
    if processors is not None and part is not None:
        mine = processors.mine(part, list(dict.fromkeys(origin for origin, _ in claims)))
        own = {origin for origins in mine.values() for origin in origins}
        claims = [(origin, count) for origin, count in claims if origin in own]
    return lineage.touched(queue, claims)


def begun(
    mq_conn_id: str, ring: str | None, sources: Iterable[lineage.Source] = (), origin: str | None = None
) -> OperatorLineage | None:
    """Return the lineage of a task that starts, without asking the store."""
    if not lineage.is_wanted():
        return None
    try:
        address, name = MessageQueueHook(mq_conn_id).place(ring or None)
    except Exception:
        # The task itself reports what is wrong with the connection.
        return None
    return lineage.begun(address, name, sources, origin)


@contextmanager
def sending(queue: MessageQueue) -> Iterator[None]:
    """Open a span around what a task sends; the messages carry it."""
    name, on = f"send {queue.ring}", queue.session.traces
    with tracing.span(name, _attributes(queue, "send", None), on=on, kind="PRODUCER"):
        yield


class Settling:
    """Metrics and traces of a block that settles; made before, because settling may delete the messages."""

    def __init__(self, queue: MessageQueue, token: str, trace: Carrier | None = None) -> None:
        self.queue, self.token, self.trace, self.began = queue, token, trace, tracing.now()
        self.planned_at: clock | None = None
        self.carried: list[MessageHeaders] = []
        self.answers: Mapping[str, Answers] = {}
        if queue.session.traces or metrics.is_on():
            harmless(self._read)()

    def _read(self) -> None:
        block = self.queue.blocks.get(self.token)
        self.planned_at = block.planned_at
        if self.queue.session.traces and block.state == "planned":
            self.carried = self.queue.inspect.headers(block, OUTCOMES, tracing.is_traced)
            self.answers = self.queue.blocks.reported(block)

    def record(self, summary: Summary) -> None:
        """Record the summary of the settled block."""
        metrics.settled(self.queue, summary, self._seconds())
        if not self.queue.session.traces:
            return
        attributes = {
            **_attributes(self.queue, "settle", summary["block"]),
            "airflow_mq.processed": summary["processed"],
            "airflow_mq.failed": summary["failed"],
            "airflow_mq.set_aside": summary["set_aside"],
            "airflow_mq.went_back": summary["went_back"],
        }
        span = tracing.record(f"settle {self.queue.ring}", self.began, attributes, parent=self.trace)
        for message in self.carried:
            self._record_outcome(message, self.trace or span, summary["block"])

    def _seconds(self) -> float | None:
        return None if self.planned_at is None else (clock.now(timezone.utc) - self.planned_at).total_seconds()

    def _record_outcome(self, message: MessageHeaders, block: Carrier | None, number: int) -> None:
        address = message.address
        answers = self.answers.get(address.book)
        word, error = outcome_word(answers.get(address.page, address.index) if answers else None)
        began = self.began if self.planned_at is None else int(self.planned_at.timestamp() * 1e9)
        attributes = {
            **_attributes(self.queue, "process", number),
            "airflow_mq.origin": address.origin,
            "messaging.message.id": str(address),
            "airflow_mq.outcome": word,
        }
        tracing.record_outcome(f"process {self.queue.ring}", began, attributes, message.headers, block, error)


def outcome_word(outcome: Outcome | None) -> tuple[str, str | None]:
    """Return an outcome as a word, and the error that it is, if any."""
    if outcome is None:
        return "went back", "no outcome was reported; the message went back to its queue"
    if isinstance(outcome, Done):
        return ("done", None) if outcome.success else ("done", "its processor reported a failure")
    if isinstance(outcome, Transferred):
        return "transferred", None
    name = type(outcome).__name__
    if isinstance(outcome, (Yield, Overweight)):
        return name.lower(), None
    return name.lower(), f"it failed for good: {name}"


def _attributes(queue: MessageQueue, operation: str, block: int | None) -> dict[str, str | int | None]:
    return {
        "messaging.operation.name": operation,
        "messaging.operation.type": "receive" if operation == "plan" else operation,
        "messaging.destination.name": queue.ring,
        "airflow_mq.block": block,
    }
