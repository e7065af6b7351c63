"""Seam between a task and its observers: the task reports what it did with a queue, the observers do the rest.

`metrics`, `traces` and `lineage` each derive their values from the same reports. Their errors never fail a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from airflow_mq.engine.rules.outcome import Done, Outcome, Overweight, Transferred, Yield
from airflow_mq.engine.rules.weight import Weight
from airflow_mq.observe import lineage, metrics, traces
from airflow_mq.observe.hooked import HookedQueue
from airflow_mq.observe.traces import LINKS, OUTCOMES, Carrier, harmless

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_mq import Block, MessageQueue, Serviced
    from airflow_mq.engine.queue.inspect.messages import MessageHeaders
    from airflow_mq.engine.rules.settle import Answers
    from airflow_mq.operators.blocks.xcoms import PlannedBlock, Summary
    from airflow_mq.processors import Part, Processors


class TaskObserver:
    """Observer of one task and the queue that it opened."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.began = traces.now()
        self.touched = harmless(lineage.touched)(queue)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Observe sends: the messages carry a span around them."""
        if self.touched is not None:
            self.touched.is_output = True
            if isinstance(self.queue, HookedQueue):
                self.queue.note_sent = self.touch
        name, on = f"send {self.queue.ring}", self.queue.session.traces
        with traces.span(name, self.attributes("send"), on=on, kind="PRODUCER"):
            yield

    def touch(self, origin: str, messages: int = 1) -> None:
        """Observe messages that the task sent to a queue or took from it."""
        if self.touched is not None:
            self.touched.messages[origin] += messages

    def planned(self, block: Block) -> Carrier:
        """Observe a planned block; return the context of its trace, for the tasks that follow."""
        metrics.planned(self.queue, block, (traces.now() - self.began) / 1e9)
        if not self.queue.session.traces:
            return {}
        carried = harmless(self.queue.inspect.headers)(block, LINKS, traces.is_traced) or []
        links = list({message.headers["traceparent"]: message.headers for message in carried}.values())
        attributes = {
            **self.attributes("plan", block.id),
            "messaging.batch.message_count": block.messages,
            "airflow_mq.planned.time": block.planned.time,
            "airflow_mq.planned.size": block.planned.size,
        }
        name = f"plan {self.queue.ring}"
        return traces.record(name, self.began, attributes, kind="CONSUMER", links=links) or {}

    @contextmanager
    def processing(self, block: PlannedBlock, part: Part, processors: Processors) -> Iterator[Carrier]:
        """Observe the processing of a part; yield the context of its span, for another process."""
        self.claimed(block["token"], part, processors)
        attributes = {
            **self.attributes("process", block["id"]),
            "messaging.batch.message_count": part["messages"],
            "airflow_mq.part": part["name"],
        }
        name, on = f"process {self.queue.ring}", self.queue.session.traces
        with traces.span(name, attributes, on=on, kind="CONSUMER", parent=block.get("trace")) as carrier:
            yield carrier

    @harmless
    def claimed(self, token: str, part: Part | None = None, processors: Processors | None = None) -> None:
        """Observe the queues of a block, or of a part of it."""
        if self.touched is None or self.touched.messages:
            return
        claims = [(claim.whose, claim.messages) for claim in self.queue.blocks.get(token).claims if claim.messages]
        if part is not None and processors is not None:
            mine = processors.mine(part, dict.fromkeys(origin for origin, _ in claims))
            own = {origin for origins in mine.values() for origin in origins}
            claims = [(origin, count) for origin, count in claims if origin in own]
        for origin, count in claims:
            self.touch(origin, count)

    def serviced(self, result: Serviced, limit: Weight) -> None:
        """Observe queues that the task serviced in place."""
        if result.origins:
            metrics.settled(self.queue, result, limit, (traces.now() - self.began) / 1e9)
        else:
            metrics.watched(self.queue)

    def lineage(self, sources: Iterable[lineage.Source] = ()) -> OperatorLineage | None:
        """Return the lineage of what was observed."""
        return None if self.touched is None else lineage.completed(self.touched, sources)

    def attributes(self, operation: str, block: int | None = None) -> dict[str, str | int | None]:
        """Return the attributes that all spans of an operation have."""
        return {
            "messaging.operation.name": operation,
            "messaging.operation.type": "receive" if operation == "plan" else operation,
            "messaging.destination.name": self.queue.ring,
            "airflow_mq.block": block,
        }


class Settling:
    """Observer of a block that is about to settle: it reads what settling may delete.

    :param trace: the context of the block's trace
    """

    def __init__(self, task: TaskObserver, token: str, trace: Carrier | None) -> None:
        task.claimed(token)
        self.task, self.queue, self.trace, self.began = task, task.queue, trace, traces.now()
        self.planned_at: datetime | None = None
        #: Whether the block had ended before, as when its task is retried or cleared.
        self.has_ended = False
        self.carried: list[MessageHeaders] = []
        self.answers: Mapping[str, Answers] = {}
        if self.queue.session.traces or metrics.is_on():
            harmless(self._read)(token)

    def _read(self, token: str) -> None:
        block = self.queue.blocks.get(token)
        self.planned_at, self.has_ended = block.planned_at, block.state != "planned"
        if self.queue.session.traces and not self.has_ended:
            self.carried = self.queue.inspect.headers(block, OUTCOMES, traces.is_traced)
            self.answers = self.queue.blocks.reported(block)

    def settled(self, result: Serviced, summary: Summary) -> None:
        planned_at = self.planned_at
        seconds = None if planned_at is None else (datetime.now(timezone.utc) - planned_at).total_seconds()
        if not self.has_ended:
            metrics.settled(self.queue, result, Weight(*summary["limit"]), seconds)
        if self.task.touched is not None and self.task.touched.block is None:
            self.task.touched.block = summary
        if not self.queue.session.traces:
            return
        attributes = {
            **self.task.attributes("settle", summary["block"]),
            "airflow_mq.processed": result.processed,
            "airflow_mq.failed": result.failed,
            "airflow_mq.set_aside": result.set_aside,
            "airflow_mq.returned": result.returned,
        }
        span = traces.record(f"settle {self.queue.ring}", self.began, attributes, parent=self.trace)
        for message in self.carried:
            self._record_outcome(message, self.trace or span, summary["block"])

    def _record_outcome(self, message: MessageHeaders, block: Carrier | None, number: int) -> None:
        address = message.address
        answers = self.answers.get(address.book)
        word, error = outcome_word(answers.get(address.page, address.index) if answers else None)
        began = self.began if self.planned_at is None else int(self.planned_at.timestamp() * 1e9)
        attributes = {
            **self.task.attributes("process", number),
            "airflow_mq.origin": address.origin,
            "messaging.message.id": str(address),
            "airflow_mq.outcome": word,
        }
        traces.record_outcome(f"process {self.queue.ring}", began, attributes, message.headers, block, error)


def outcome_word(outcome: Outcome | None) -> tuple[str, str | None]:
    """Return an outcome as a word, and the error that it is, if any."""
    if outcome is None:
        return "returned", "no outcome was reported; the message returned to its queue"
    name = type(outcome).__name__
    if isinstance(outcome, Done):
        return name.lower(), None if outcome.success else "its processor reported a failure"
    is_wrong = not isinstance(outcome, (Transferred, Yield, Overweight))
    return name.lower(), f"the message failed and is not tried again: {name}" if is_wrong else None
