"""Looking without touching: footprints, peeks, what is set aside, events, the ledger, the check."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain, islice

from ...core.errors import InvalidInput
from ...core.events import Event
from ...core.groups import SEPARATOR
from ...core.invariants import Violation
from ...core.message import MOST_ORIGIN_BYTES, Address, Footprint, check_number, check_origin, check_text
from ...core.orders import shuffled
from ...core.page import ASIDE, PROCESSED, Page
from ...core.priority import (
    HIGH,
    LAST,
    MARK,
    PAST_HIGH,
    REGULAR,
    book_name,
    books_of,
    check_priority,
    origin_of,
)
from ...store import codec
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..blocks import measures
from ..blocks.reports import answers_of
from ..ledger import ledger_pages
from ..servers import Server, servers_of
from ..session import RingSession
from ..values import LedgerBlock, Peeked, Pulse, moment
from .check.inboxes import Repair, repair_inboxes
from .check.ring import check_ring

log = logging.getLogger("airflow_mq.check")

#: Seconds between two looks of somebody who follows events.
_FOLLOW = 0.5
#: Bytes of a seed.
MOST_SEED = 64
#: How many queues are looked into at once.
_BATCH = 1000
#: An event's place in its row is counted in so many bits of its `seq`.
SEQ_BITS = 16


class Footprints:
    """How much of the store queues take."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def footprint(self, origin: str, priority: str | None = None, *, below: bool = False) -> Footprint:
        """See `MessageQueue.footprint`."""
        check_origin(origin)
        with self.session.snapshot() as (unit, working_set):
            return reduce(Footprint.plus, _footprints_of(unit, working_set, origin, priority, below))

    def footprints(self, prefix: str = "", after: str = "", limit: int = 100) -> list[tuple[str, Footprint]]:
        """See `MessageQueue.footprints`."""
        for text in (prefix, after):
            check_text(text, "the beginning of an origin", MOST_ORIGIN_BYTES)
        check_number(limit, "a limit")
        with self.session.snapshot() as (unit, working_set):
            origins = origins_from(unit, working_set, prefix, after, limit)
            if not working_set.config.high:
                return _footprints(unit, working_set, origins)
            found = dict(_footprints(unit, working_set, [name for origin in origins for name in books_of(origin)]))
            return [(origin, found[book_name(origin, HIGH)].plus(found[origin])) for origin in origins]


class Reader:
    """Reads of a ring that write nothing."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def ring_order(self, limit: int = 100, priority: str = REGULAR) -> list[str]:
        """See `Inspect.ring_order`."""
        with self.session.snapshot() as (_, working_set):
            ring = working_set.high if check_priority(priority) == HIGH else working_set.ring
            return [origin_of(name) for name in islice(ring, limit)]

    def shuffled_order(self, seed: bytes, limit: int = 100, priority: str = REGULAR) -> list[str]:
        """See `Inspect.shuffled_order`."""
        if not 1 <= len(seed) <= MOST_SEED:
            raise InvalidInput(f"a seed is 1 to {MOST_SEED} bytes")
        with self.session.snapshot() as (_, working_set):
            ring = working_set.high if check_priority(priority) == HIGH else working_set.ring
            return [origin_of(name) for name in shuffled(ring, seed)[:limit]]

    def pulse(self, most: int = 1) -> Pulse:
        """See `Inspect.pulse`."""
        with self.session.snapshot() as (unit, working_set):
            newest, set_aside, due = unit.inbox.pulse(self.ring_id, working_set.now)
            paused = {row.origin for row in unit.origins.paused(self.ring_id, working_set.now)}
            line = chain(working_set.high, working_set.ring)
            is_paused = working_set.loader.groups.is_paused_below
            waiting = (name for name in line if origin_of(name) not in paused and not is_paused(name))
            ready = dict.fromkeys(map(origin_of, islice(waiting, most)))
            return Pulse(tuple(ready), bool(due), newest, set_aside)

    def peek(
        self, origin: str, *, page: int | None = None, limit: int = 20, priority: str | None = None
    ) -> list[Peeked]:
        """See `Inspect.peek`."""
        check_origin(origin)
        found: list[Peeked] = []
        with self.session.snapshot() as (unit, working_set):
            for name in _books(working_set, origin, priority):
                found += self._peek(unit, working_set, name, page, limit - len(found))
        return found

    def _peek(self, unit: Unit, working_set: StoredSet, origin: str, page: int | None, limit: int) -> list[Peeked]:
        book = working_set.book(origin)
        working_set.loader.pages.look_far(origin)
        while working_set.pull(book) and (page is None or book.end <= page) and book.message_count < 4 * limit:
            pass
        claimed, reported = in_flight(unit, self.ring_id, origin)
        found: list[Peeked] = []
        pages = range(book.begin, book.end) if page is None else [page]
        for index in pages:
            its = working_set.page(origin, index)
            if its is not None and len(found) < limit:
                found += _peek_page(unit, working_set, origin, its, claimed, reported, limit - len(found))
        return found

    def events(
        self, *, origin: str | None = None, name: str | None = None, block: int | None = None,
        id: bytes | None = None, after: int = 0, limit: int | None = None, follow: bool = False,
    ) -> Iterator[Event]:  # fmt: skip
        """See `Inspect.events`."""
        left, row_id = limit, (after >> SEQ_BITS) - 1
        if left is not None and left <= 0:
            return
        while True:
            with self.store.reading() as unit:
                high = None if origin is None else book_name(origin, HIGH)
                rows = unit.events.after(self.ring_id, row_id, 256, origin=origin, also=high, block=block)
            for row_id, whose, its_block, at, data in rows:
                seq = row_id << SEQ_BITS
                for run in codec.unpack_events(whose, bytes(data)):
                    for event in run.unroll(its_block, at / 1_000_000, seq):
                        if event.seq <= after or (name and event.name != name) or (id and event.id != id):
                            continue
                        left = None if left is None else left - 1
                        yield event
                        if left == 0:
                            return
                    seq += len(run.ids)
            if len(rows) < 256:
                if not follow:
                    return
                time.sleep(_FOLLOW)

    def ledger(self, *, block: int | None = None, limit: int = 100) -> list[LedgerBlock]:
        """See `Inspect.ledger`."""
        with self.store.loose() as unit:
            if block is not None:
                return ledger_pages(unit, self.ring_id, limit, block, block)
            return ledger_pages(unit, self.ring_id, limit)

    def servers(self) -> list[Server]:
        """See `Inspect.servers`."""
        with self.store.loose() as unit:
            return servers_of(unit, self.ring_id)

    def fits(self, processor: str | None = None) -> list[measures.Fit]:
        """See `Inspect.fits`."""
        with self.store.loose() as unit:
            rows = unit.origins.measures(self.ring_id, processor)
        return [measures.fit(whose, origin, data) for whose, origin, data in rows]

    def check(self, progress: Callable[[int, int], object] | None = None) -> list[Violation]:
        """See `MessageQueue.check`."""
        with self.session.snapshot() as (unit, working_set):
            return check_ring(self.session, unit, working_set, list(all_origins(unit, self.ring_id)), progress)

    def repair(self, *, dry_run: bool = False) -> list[Repair]:
        """See `MessageQueue.repair`."""
        self.session.refuse_nested()
        with self.store.reading() as unit:
            origins = list(all_origins(unit, self.ring_id))
        repaired = repair_inboxes(self.session, origins, dry_run=dry_run)
        for repair in repaired if not dry_run else ():
            log.warning("repaired ring %r: %s", self.session.ring, repair)
        return repaired


def _books(working_set: StoredSet, origin: str, priority: str | None) -> list[str]:
    """The books of an origin that are asked for, the high one first."""
    if priority is not None:
        return [book_name(origin, check_priority(priority))]
    return list(books_of(origin)) if working_set.config.high else [origin]


def origins_from(unit: Unit, working_set: StoredSet, prefix: str, after: str, limit: int) -> list[str]:
    """Origins by name that begin like this."""
    ring = working_set.ring_id
    names = _names_from(unit, ring, after or PAST_HIGH, prefix, prefix + LAST, limit)
    if working_set.config.high:
        high = _names_from(unit, ring, MARK + after, MARK + prefix, MARK + prefix + LAST, limit)
        names |= set(map(origin_of, high))
    return sorted(names)[:limit]


def _names_from(unit: Unit, ring: int, after: str, first: str, below: str, limit: int) -> set[str]:
    names = set(unit.books.origins(ring, after, first, below, limit))
    return names | set(unit.inbox.origins(ring, after, first, below, limit))


def _footprints_of(
    unit: Unit, working_set: StoredSet, origin: str, priority: str | None, below: bool
) -> Iterator[Footprint]:
    batch = [origin]
    while batch:
        names = [name for one in batch for name in _books(working_set, one, priority)]
        yield from (its for _, its in _footprints(unit, working_set, names))
        batch = origins_from(unit, working_set, origin + SEPARATOR, batch[-1], _BATCH) if below else []


def _footprints(unit: Unit, working_set: StoredSet, origins: list[str]) -> list[tuple[str, Footprint]]:
    working_set.loader.inboxes.look_at(origins)
    reported = unit.blocks.reports_on(working_set.ring_id, origins)
    gone: dict[str, list[bytes]] = {}
    for origin, data in reported:
        gone.setdefault(origin, []).append(bytes(data))
    claimed = _claimed(unit, working_set.ring_id, list(gone)) if gone else {}
    found: list[tuple[str, Footprint]] = []
    for origin in origins:
        book = working_set.book(origin)
        while working_set.pull(book):
            pass
        footprint = book.footprint
        if origin in gone:
            footprint = _without_reported(working_set, origin, footprint, gone[origin], claimed.get(origin, set()))
        found.append((origin, footprint))
    return found


def _without_reported(
    working_set: StoredSet, origin: str, footprint: Footprint, data: Iterable[bytes], claimed: set[tuple[int, int]]
) -> Footprint:
    """What was reported is gone for every reader, though it is settled later."""
    answers = answers_of(data).get(origin)
    if answers is None:
        return footprint
    # A report may tell of more than its block holds; that changes nothing.
    items = answers.items() & claimed
    working_set.loader.pages.fetch((origin, page) for page, _ in items)
    sizes = [
        page.held_of(item) for index, item in items
        if (page := working_set.page(origin, index)) and item < len(page.marks) and page.marks[item] != PROCESSED
    ]  # fmt: skip
    return Footprint(footprint.pages, footprint.ready_pages, footprint.count - len(sizes), footprint.size - sum(sizes))


def in_flight(unit: Unit, ring: int, origin: str) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """What live blocks hold of this origin, and what of that was answered for: pages and indices."""
    claimed = _claimed(unit, ring, [origin]).get(origin, set())
    answers = answers_of(row.data for row in unit.blocks.reports_on(ring, [origin])).get(origin)
    return claimed, answers.items() & claimed if answers else set()


def _claimed(unit: Unit, ring: int, origins: list[str]) -> dict[str, set[tuple[int, int]]]:
    """What live blocks hold of these origins: pages and indices."""
    found: dict[str, set[tuple[int, int]]] = {}
    for origin, data in unit.blocks.claims_on(ring, origins):
        for run in codec.unpack_claim(origin, bytes(data)).runs:
            found.setdefault(origin, set()).update((run.page, item) for item in range(run.first, run.first + run.count))
    return found


def _peek_page(
    unit: Unit, working_set: StoredSet, origin: str, page: Page, claimed: set[tuple[int, int]],
    reported: set[tuple[int, int]], limit: int,
) -> list[Peeked]:  # fmt: skip
    items = list(islice((item for item, mark in enumerate(page.marks) if mark != PROCESSED), limit))
    if not items:
        return []
    payloads, headers = (
        working_set.payloads(origin, page),
        working_set.loader.headers(origin, page, items[0], items[-1] + 1),
    )
    found: list[Peeked] = []
    sent = working_set.loader.payloads.sent_at(origin, page)
    for item in items:
        mark = page.marks[item]
        if (page.index, item) in reported:
            state = "reported"
        elif (page.index, item) in claimed:
            state = "in flight"
        else:
            state = "set aside" if mark == ASIDE or page.index < working_set.book(origin).begin else "waiting"
        note = page.note(item)
        found.append(
            Peeked(Address(origin, page.index, item), payloads[item], state, headers.get(item, {}),
                   moment(sent[item]) if item in sent else None, note.attempts, note.weight)
        )  # fmt: skip
    return found


def page_at(working_set: StoredSet, address: Address) -> Page | None:
    """A page, with what was sent meanwhile cut up to there."""
    book = working_set.book(address.book)
    while book.end <= address.page and working_set.pull(book):
        pass
    page = working_set.page(address.book, address.page)
    while (
        page is not None
        and address.index >= len(page.lengths)
        and page.index == book.end - 1
        and working_set.pull(book)
    ):
        pass
    return page


def all_origins(unit: Unit, ring: int) -> Iterator[str]:
    """The names of all books of a ring, and of what was sent to those that have none yet."""
    after = ""
    while True:
        names = unit.books.names(ring, after, 1000)
        names += unit.inbox.origins(ring, after, "", LAST, 1000)
        batch = sorted(set(names))[:1000]
        if not batch:
            return
        yield from batch
        after = batch[-1]
