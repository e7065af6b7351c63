"""What the page in Airflow's UI asks of a ring: queues, the ring from its head on, blocks, pages, events, shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...core.book import Standing
from ...core.events import Event
from ...core.message import MOST_ORIGIN_BYTES, check_number, check_origin, check_text
from ...core.page import ASIDE
from ...core.priority import REGULAR, book_name, books_of, check_priority
from ...core.weight import ZERO, Weight
from ...store import codec
from ...store.events import EventRow
from ...store.rows import LATEST, page_of
from ..ledger import ledger_pages
from ..session import RingSession
from ..values import moment
from .fairness import fairness_of
from .lines import in_turn, with_high
from .reading import SEQ_BITS, origins_from
from .summaries import LATELY, PageState, QueueState, living, queues_of

#: Mails that are looked at for queues which no block has met yet.
NEWS = 512
#: Rows of events that are read at once, and how often at most.
EVENT_ROWS, EVENT_READS = 256, 20


@dataclass(frozen=True)
class RingState:
    """A ring from its head on, at a glance."""

    now: datetime
    version: int
    #: How many queues stand in the ring; those whose first mail no block has looked at yet are not counted.
    ready: int
    #: The first of them, high ones first.
    queues: Sequence[QueueState]
    #: Messages that live blocks hold.
    in_flight: int


@dataclass
class Received:
    """What a queue got of the latest blocks."""

    #: Parts of what these gave to all: what it was promised, and what it got; nothing, where it never had to wait.
    promised: float | None = None
    received: float | None = None
    #: Messages that blocks took within the last ten minutes.
    messages: int = 0


class States:
    """Bounded reads for the page."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def queues(
        self,
        prefix: str = "",
        after: str = "",
        limit: int = 50,
        *,
        among: Sequence[tuple[str, str]] | None = None,
        exact: bool = False,
        lately: float = LATELY,
    ) -> list[QueueState]:
        """See `Inspect.queues`."""
        for text in (prefix, after):
            check_text(text, "the beginning of an origin", MOST_ORIGIN_BYTES)
        check_number(limit, "a limit")
        chosen = [book_name(origin, check_priority(priority)) for origin, priority in among or ()]
        with self.session.snapshot() as (unit, working_set):
            names = (
                chosen
                if among is not None
                else with_high(working_set, origins_from(unit, working_set, prefix, after, limit))
            )
            most = LATEST if exact else None
            return queues_of(unit, working_set, names, lately=lately, most=most, exact=exact)

    def ring(self, most: int = 60) -> RingState:
        """See `Inspect.ring`."""
        check_number(most, "a limit")
        with self.session.snapshot() as (unit, working_set):
            _, floor, version = unit.rings.floors(self.ring_id)
            ready = unit.books.count(self.ring_id, 0, -LATEST, LATEST).total
            in_flight = sum(block.messages for block in living(unit, self.ring_id))
            names = in_turn(unit, working_set, most, floor, news=NEWS, steps=1)
            found = [one for one in queues_of(unit, working_set, names, lately=LATELY) if one.in_ring]
            return RingState(moment(working_set.now), version, ready, found, in_flight)

    def pages(self, origin: str, priority: str = REGULAR, limit: int = 100) -> list[PageState]:
        """See `Inspect.pages`."""
        name = book_name(check_origin(origin), check_priority(priority))
        check_number(limit, "a limit")
        with self.session.snapshot() as (unit, working_set):
            begin = working_set.book(name).begin
            pages = [page_of(row) for row in unit.pages.between(self.ring_id, [(name, 0, LATEST)], limit)]
        found, head = [], next((page.index for page in pages if page.index >= begin), None)
        for page in pages:
            state = "stale" if page.index < begin else "head" if page.index == head else "waiting"
            kept = sum(1 for mark in page.marks if mark == ASIDE)
            found.append(PageState(page.index, page.first_index, page.remaining, page.remaining_size, kept, state))
        return found

    def origin_settings(self, origin: str) -> Standing:
        """See `Inspect.origin_settings`."""
        with self.session.snapshot() as (_, working_set):
            book = working_set.book(check_origin(origin))
            return replace(book.standing, ordered=working_set.is_ordered(book))

    def latest_events(
        self, before: int | None = None, limit: int = 100, *, origin: str | None = None, name: str | None = None
    ) -> tuple[list[Event], int | None]:
        """See `Inspect.latest_events`."""
        check_number(limit, "a limit")
        if origin is not None:
            check_origin(origin)
        top = LATEST if before is None else check_number(before, "an event")
        row_id = (top >> SEQ_BITS) + 1
        found: list[Event] = []
        for _ in range(EVENT_READS):
            rows = self._event_rows(row_id, origin)
            for row_id, whose, block, at, data in rows:
                for event in reversed(list(_events_of(row_id, whose, block, at, data))):
                    if event.seq >= top or (name and event.name != name):
                        continue
                    if len(found) == limit:
                        return found, found[-1].seq
                    found.append(event)
            if len(rows) < EVENT_ROWS:
                return found, None
        return found, row_id << SEQ_BITS

    def _event_rows(self, before: int, origin: str | None) -> list[EventRow]:
        with self.store.loose() as unit:
            if origin is None:
                return unit.events.recent(self.ring_id, before, EVENT_ROWS)
            return unit.events.recent_of(self.ring_id, books_of(origin), before, EVENT_ROWS)

    def max_message_weight(self) -> Weight | None:
        """See `Inspect.max_message_weight`."""
        return None if self.session.config.service_weight is None else self.session.config.max_message_weight or ZERO

    def has_many_newcomers(self, most: int = 500) -> bool:
        """See `Inspect.has_many_newcomers`."""
        with self.store.loose() as unit:
            after = unit.rings.floors(self.ring_id).look_floor - 1
            news = unit.inbox.next_queues(self.ring_id, after, 10 * most)
        return len({name for name, _ in news}) > most

    def latest_ledger_block(self) -> int | None:
        """See `Inspect.latest_ledger_block`."""
        with self.store.loose() as unit:
            rows = unit.ledger.latest(self.ring_id, 1)
        return rows[0].block if rows else None

    def shares(self, blocks: int = 20) -> tuple[int | None, Mapping[tuple[str, str], Received]]:
        """See `Inspect.shares`."""
        check_number(blocks, "a number of blocks")
        with self.session.snapshot() as (unit, working_set):
            ledger = ledger_pages(unit, self.ring_id, blocks)
            told = fairness_of(working_set, ledger, most=0).origins if ledger else ()
            since = moment(working_set.now - int(LATELY * 1_000_000))
        found: dict[tuple[str, str], Received] = {}
        for page in ledger:
            for entry in page.entries:
                one = found.setdefault((entry.origin, entry.priority), Received())
                one.messages += entry.messages if page.at > since else 0
        for its in told:
            one = found.setdefault((its.origin, its.priority), Received())
            one.promised, one.received = its.promised, its.received
        return (ledger[0].block if ledger else None), found


def _events_of(row_id: int, whose: str, block: int | None, at: int, data: Any) -> Iterator[Event]:
    seq = row_id << SEQ_BITS
    for run in codec.unpack_events(whose, bytes(data)):
        yield from run.unroll(block, at / 1_000_000, seq)
        seq += len(run.ids)
