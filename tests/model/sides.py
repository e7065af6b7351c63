"""One ring on each store under test; every call goes to all of them, and all must answer alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_mq import Block, MessageQueue, RingConfig
from airflow_mq.core.errors import MessageQueueError
from airflow_mq.testing.conformance import observe

from .plain import Event


class Side:
    """One ring of one store."""

    def __init__(self, uri: str, name: str, config: RingConfig, listen: bool = False) -> None:
        with MessageQueue(uri) as maker:
            maker.admin.create_ring(name, config)
        self.told: list[tuple[str, Any]] = []
        listeners = [lambda *call: self.told.append(call)] if listen else []
        self.queue = MessageQueue(uri, name, listeners=listeners, actor="the test")
        self.blocks: list[Block] = []
        self.seen = 0

    def fresh_events(self) -> list[tuple[Event, bytes | None]]:
        found = []
        for event in self.queue.inspect.events(after=self.seen):
            self.seen = event.seq
            found.append((Event(event.name, event.origin, event.page, event.index), event.id))
        return found

    def state(self) -> dict[str, Any]:
        """Books and pages; where nobody will try a page again, its first item is nobody's business."""
        books: dict[str, Any] = observe(self.queue)["books"]
        for book in books.values():
            book["pages"] = {
                int(index): page_facts(page, int(index) < book["begin"]) for index, page in book["pages"].items()
            }
        return books

    def deficits(self, origins: Sequence[str]) -> dict[str, int]:
        with self.queue.session.snapshot() as (_, working_set):
            return {origin: working_set.book(origin).deficit for origin in origins}


def page_facts(page: dict[str, Any], stale: bool) -> tuple[Any, ...]:
    return None if stale else page["first_index"], [tuple(item) for item in page["items"]]


class Sides:
    """All stores as one."""

    def __init__(self, uris: Sequence[str], name: str, config: RingConfig, listen: bool = False) -> None:
        self.all = [Side(uri, name, config, listen) for uri in uris]

    def do(self, call: Callable[[Side], Any]) -> Any:
        """What all of them answer: a value, or the name of a refusal."""
        found = []
        for side in self.all:
            try:
                found.append(call(side))
            except MessageQueueError as error:
                found.append(type(error).__name__)
        for other in found[1:]:
            assert found[0] == other, "the stores disagree"
        return found[0]

    def close(self) -> None:
        for side in self.all:
            side.queue.close()


def run_facts(run: Any) -> tuple[Any, ...]:
    decisions = sorted((at, decision.verdict.name) for at, decision in run.decisions.items())
    return run.page, run.first, run.count, run.closed, decisions


def block_facts(block: Block) -> tuple[Any, ...]:
    """A block without what is chance: its name and its token."""
    claims = [(claim.origin, [run_facts(run) for run in claim.runs]) for claim in block.claims]
    return tuple(block.limit), tuple(block.planned), tuple(block.overhead), block.messages, claims
