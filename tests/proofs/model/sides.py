"""Rings on all stores under test: each call goes to all of them, and their answers must agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_mq import Block, MessageQueue, RingConfig
from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.testing.conformance import observe

from .account import Sums, added, as_stored
from .plain import Event


class Side:
    """A ring of one store."""

    def __init__(self, uri: str, name: str, config: RingConfig, listen: bool = False) -> None:
        with MessageQueue(uri) as maker:
            maker.admin.create_ring(name, config)
        self.calls: list[tuple[str, Any]] = []
        listeners = [lambda *call: self.calls.append(call)] if listen else []
        self.queue = MessageQueue(uri, name, listeners=listeners, actor="the test")
        self.blocks: list[Block] = []
        self.seen = 0

    def fresh_events(self) -> list[tuple[Event, bytes | None]]:
        events = []
        for event in self.queue.inspect.events(after=self.seen):
            self.seen = event.seq
            events.append((Event(event.name, event.origin, event.page, event.index), event.id))
        return events

    def state(self) -> dict[str, Any]:
        """Return books and pages, without the first index of pages before the window."""
        books: dict[str, Any] = observe(self.queue)["books"]
        for book in books.values():
            book["pages"] = {
                int(index): page_facts(page, int(index) < book["begin"]) for index, page in book["pages"].items()
            }
        return books

    def charged(self) -> dict[tuple[int | None, str], Sums]:
        """Return what each block, by its place in `blocks`, and origin was charged, without measured times."""
        numbers: dict[int | None, int | None] = {None: None} | {block.id: at for at, block in enumerate(self.blocks)}
        with self.queue.store.reading() as unit:
            rows = list(unit.charges.each(self.queue.session.ring_id))
        return added(
            ((numbers[row.block], origin), one._replace(measured=0))
            for row in rows for (origin, *_), one in as_stored(row.charges).items()
        )  # fmt: skip

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
        """Return the common answer: a value, or the name of a refusal."""
        answers = []
        for side in self.all:
            try:
                answers.append(call(side))
            except MessageQueueError as error:
                answers.append(type(error).__name__)
        for other in answers[1:]:
            assert answers[0] == other, "the stores disagree"
        return answers[0]

    def close(self) -> None:
        for side in self.all:
            side.queue.close()


def run_facts(run: Any) -> tuple[Any, ...]:
    decisions = sorted(
        (at, "EXPIRED" if decision.exceeded is None else "SET_ASIDE") for at, decision in run.decisions.items()
    )
    return run.page, run.first, run.count, run.closed, decisions


def block_facts(block: Block) -> tuple[Any, ...]:
    """Return a block's facts without its random name and token."""
    claims = [(claim.origin, [run_facts(run) for run in claim.runs]) for claim in block.claims]
    return tuple(block.limit), tuple(block.planned), tuple(block.overhead), block.messages, claims
