"""What the tasks of a block tell those who watch: metrics, and traces. Nothing of it can fail a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime as clock
from datetime import timezone
from typing import TYPE_CHECKING, Any

from airflow_mq import lineage, metrics, tracing
from airflow_mq.core.outcome import Done, Outcome, Overweight, Transferred, Yield
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.tracing import LINKS, OUTCOMES, Carrier, harmless

if TYPE_CHECKING:
    from airflow_mq import Block, MessageQueue
    from airflow_mq.core.settle import Answers
    from airflow_mq.processors import Part, Processors
    from airflow_mq.queue import MessageHeaders


def planned(queue: MessageQueue, block: Block, began: int) -> Carrier:
    """Tell of a block that was planned; returns the context of its trace, for the tasks that go on with it."""
    metrics.planned(queue, block, (tracing.now() - began) / 1e9)
    if not queue.session.traces:
        return {}
    carried = harmless(queue.inspect.headers)(block, LINKS, tracing.is_traced) or []
    links = list({one.headers["traceparent"]: one.headers for one in carried}.values())
    said = _said(queue, "plan", block.id)
    return tracing.tell(f"plan {queue.ring}", began, kind="CONSUMER", links=links, **said, **{
        "messaging.batch.message_count": block.messages, "airflow_mq.planned.time": block.planned.time,
        "airflow_mq.planned.size": block.planned.size,
    }) or {}  # fmt: skip


@contextmanager
def processing(queue: MessageQueue, part: Mapping[str, Any], block: Mapping[str, Any]) -> Iterator[Carrier]:
    """A span around the processing of a part; gives the context for a process that goes on with it."""
    said = {**_said(queue, "process", block["id"]), "messaging.batch.message_count": part["messages"],
            "airflow_mq.part": part["name"]}  # fmt: skip
    name = f"process {queue.ring}"
    with tracing.span(name, on=queue.session.traces, kind="CONSUMER", parent=block.get("trace"), **said) as carrier:
        yield carrier


@harmless
def taken(
    queue: MessageQueue, token: str, processors: Processors | None = None, part: Part | None = None
) -> lineage.Touched | None:
    """The queues that a block, or a part of it, takes messages of, for whoever follows lineage."""
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
) -> Any:  # fmt: skip
    """What lineage is told of a task that starts; the store is not asked for it."""
    if not lineage.is_wanted():
        return None
    try:
        address, name = MessageQueueHook(mq_conn_id).place(ring or None)
    except Exception:
        # What is wrong with the connection is for the task itself to say.
        return None
    return lineage.begun(address, name, sources, origin)


@contextmanager
def sending(queue: MessageQueue) -> Iterator[None]:
    """A span around what a task sends, which its messages carry."""
    with tracing.span(
        f"send {queue.ring}", on=queue.session.traces, kind="PRODUCER", **_said(queue, "send", None)
    ):  # fmt: skip
        yield


class Settling:
    """A block that settles: looked at before, for its messages may be gone afterwards, and told of then."""

    def __init__(self, queue: MessageQueue, token: str, trace: Carrier | None = None) -> None:
        self.queue, self.token, self.trace, self.began = queue, token, trace, tracing.now()
        self.planned_at: clock | None = None
        self.carried: list[MessageHeaders] = []
        self.answers: Mapping[str, Answers] = {}
        if queue.session.traces or metrics.is_on():
            harmless(self._look)()

    def _look(self) -> None:
        block = self.queue.blocks.get(self.token)
        self.planned_at = block.planned_at
        if self.queue.session.traces and block.state == "planned":
            self.carried = self.queue.inspect.headers(block, OUTCOMES, tracing.is_traced)
            self.answers = self.queue.blocks.reported(block)

    def told(self, summary: Mapping[str, Any]) -> None:
        """Tell what the block came to."""
        metrics.settled(self.queue, summary, self._seconds())
        if not self.queue.session.traces:
            return
        said = _said(self.queue, "settle", summary["block"])
        counts = {f"airflow_mq.{what}": summary[what] for what in ("processed", "failed", "set_aside", "went_back")}
        name = f"settle {self.queue.ring}"
        told = tracing.tell(name, self.began, parent=self.trace, **said, **counts)
        for one in self.carried:
            self._tell_of(one, self.trace or told, summary["block"])

    def _seconds(self) -> float | None:
        return None if self.planned_at is None else (clock.now(timezone.utc) - self.planned_at).total_seconds()

    def _tell_of(self, one: MessageHeaders, block: Carrier | None, number: int) -> None:
        answers = self.answers.get(one.address.book)
        fate, wrong = fate_of(answers.get(one.address.page, one.address.index) if answers else None)
        began = self.began if self.planned_at is None else int(self.planned_at.timestamp() * 1e9)
        tracing.tell_outcome(f"process {self.queue.ring}", began, one.headers, block, wrong, **{
            **_said(self.queue, "process", number), "airflow_mq.origin": one.address.origin,
            "messaging.message.id": str(one.address), "airflow_mq.outcome": fate,
        })  # fmt: skip


def fate_of(outcome: Outcome | None) -> tuple[str, str | None]:
    """What became of a message, in a word; and why that is an error, if it is one."""
    if outcome is None:
        return "went back", "nobody answered for it; it went back to its queue"
    if isinstance(outcome, Done):
        return ("done", None) if outcome.success else ("done", "its processor says that it failed")
    if isinstance(outcome, Transferred):
        return "transferred", None
    name = type(outcome).__name__
    if isinstance(outcome, (Yield, Overweight)):
        return name.lower(), None
    return name.lower(), f"it failed for good: {name}"


def _said(queue: MessageQueue, what: str, block: int | None) -> dict[str, Any]:
    kind = {"plan": "receive", "process": "process", "settle": "settle", "send": "send"}[what]
    return {
        "messaging.operation.name": what, "messaging.operation.type": kind, "messaging.destination.name": queue.ring,
        "airflow_mq.block": block,
    }  # fmt: skip
