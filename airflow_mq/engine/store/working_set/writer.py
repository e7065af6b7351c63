"""Writer: turns the changes of a working set into rows with final ids, and stores them in the one right order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap

from ...rules.book import Book
from ...rules.changes import POSTED, Aside, Changes, CutTotal, PutOff
from ...rules.charging import Charge
from ...rules.errors import StoreCorrupt
from ...rules.events import EventRun
from ...rules.message import Address, Posted
from ...rules.page import PROCESSED, Page, Slices
from ...rules.priority import is_high, told
from ...rules.working_set import WorkingSet
from .. import codec
from ..books import SavedPage, saved_page
from ..inbox import RowRange
from ..origins import BucketRow, GroupRow
from ..rows import ASLEEP, Arrival, BookRow, StateRow, dated, delayed_row, posted_row
from ..set_aside import AsideRow
from ..unit import Unit
from .inbox import Cut
from .loader import StoreLoader
from .pages import NO_PAGE

Key = tuple[str, int]
#: Returns which of some rows of a queue are still stored.
Existing = Callable[[str, Iterable[int]], set[int]]
#: Number of rows ahead of the floor from which a write looks for deleted ones among them.
MANY_AHEAD = 1_024


@dataclass(frozen=True)
class ChangedRows:
    """All that a writer stores for one operation: the operation may go on meanwhile, and changes none of it."""

    now: int
    block: int | None
    #: The state of the ring with its floors and places after the operation.
    state: StateRow
    posted: Mapping[int, Posted]
    #: Messages that join their queues when they are due, with the times at which they were sent.
    put_off: list[tuple[PutOff, Arrival]]
    pages: list[SavedPage]
    removed_pages: Mapping[Key, Page]
    #: References to external payloads that went: rows, and places in them.
    references: list[tuple[int, int]]
    books: list[BookRow]
    #: The floor of each inbox that moves, before and after: each row that it passes must be one of those that were cut.
    raised_floors: Mapping[str, tuple[int, int, Collection[int]]]
    groups: list[GroupRow]
    buckets: list[BucketRow]
    asides: Mapping[Address, Aside | None]
    #: Queue and id of the inbox row of each message that is set aside, and the first block planned after it arrived,
    #: if it returned to its queue since.
    aside_rows: Mapping[Address, tuple[str, int, int | None]]
    events: list[EventRun]
    charges: Mapping[tuple[str, ...], Charge]
    server: str

    def arrivals(self, unit: Unit, ring: int) -> dict[Address, Arrival]:
        """Return when the messages were sent that are set aside; some of them may be enqueued by the same operation."""
        known = unit.inbox.arrivals(ring, [row[:2] for row in self.aside_rows.values()])
        return {
            at: known[origin, id_]._replace(block=arrived or known[origin, id_].block)
            for at, (origin, id_, arrived) in self.aside_rows.items()
            if (origin, id_) in known
        }

    def set_aside(self, arrivals: Mapping[Address, Arrival]) -> dict[Address, AsideRow | None]:
        """Return the rows of messages that are set aside, and None for those that are set aside no longer."""
        return {
            at: None if aside is None else AsideRow.of(at, aside, self.block, self.now, arrivals.get(at))
            for at, aside in self.asides.items()
        }


class Collector:
    """Collects what a working set must write; of a plan only what it cut, and what its queues earned."""

    def __init__(self, working_set: WorkingSet, loader: StoreLoader, existing: Existing | None) -> None:
        """:param existing: returns which rows of a queue are still stored."""
        self.working_set = working_set
        self.loader = loader
        self.existing = existing
        self.changes = working_set.changes
        #: What the operation did beyond cutting, which a plan does not write.
        self.done = Changes() if working_set.planning else working_set.changes
        self.stored = loader.books.stored
        #: Returns a book as it is to be stored.
        self.book = cache(self._planned) if working_set.planning else working_set.books.__getitem__

    def rows(self, fresh_ids: Callable[[int], list[int]]) -> ChangedRows:
        """Return the rows, with final ids; more are drawn for long headers, as quotas count an id for each page."""
        changes, done = self.changes, self.done
        posted, moved, put_off = changes.posted, self._moved(), self._put_off()
        pages_beside = sum(one.attributes.beside for one in posted.values()) // self.working_set.config.heap_size
        drawn = fresh_ids(len(posted) + len(moved) + pages_beside) if posted or moved else []
        if posted:
            self._rename(dict(zip(posted, drawn)))
        references = self._references()
        pages = [saved_page(origin, page, page.set_aside(self.book(origin).begin)) for origin, page in self._pages()]
        tickets = {**changes.tickets, **self._places(moved, drawn[len(posted) :])}
        origins = self._origins().union(tickets, self._sleepers())
        raised = dict(self._raised_floors(origins))
        books = self._book_rows(origins, tickets)
        return ChangedRows(
            self.working_set.now, changes.block, self._state(),
            books=books,
            posted=dict(zip(drawn, posted.values())), put_off=put_off,
            pages=pages, removed_pages=done.removed_pages, references=references,
            raised_floors=raised, groups=self.loader.groups.changed_rows(),
            buckets=self.loader.books.buckets.changed_rows() if changes.buckets else [],
            asides=done.asides, aside_rows=dict(self._aside_rows()), events=[*changes.exhaustions, *done.events],
            charges=done.charges, server=done.server,
        )  # fmt: skip

    def _put_off(self) -> list[tuple[PutOff, Arrival]]:
        """Return the messages that wait aside, with the times at which they were sent: one read brings all."""
        wanted = self.changes.put_off
        items: defaultdict[Page, list[int]] = defaultdict(list)
        for one in wanted:
            items[one.page].append(one.item)
        row_ids = {page: dict(zip(own, page.row_ids_of(own))) for page, own in items.items()}
        keys = [(one.posted.origin, row_ids[one.page][one.item]) for one in wanted]
        source = self.loader.source
        stored = (key for key in keys if key[1] < POSTED)
        found = source.unit.inbox.arrivals(source.ring_id, stored) if keys else {}
        # A message that this operation enqueued itself has no row yet.
        sent_now = Arrival(self.working_set.now, None)
        return [(one, found.get(key, sent_now)) for one, key in zip(wanted, keys)]

    # Books.

    def _planned(self, origin: str) -> Book:
        """Return a book after a plan: where it stood, with what was cut since."""
        book = self.working_set.books[origin]
        row, cut = self.stored[origin].row, self.changes.cut.get(origin) or CutTotal()
        return Book(
            origin, row.begin_page, book.end, row.pages + book.end - row.end_page, row.messages + cut.messages,
            row.size + cut.size, book.deficit,
        )  # fmt: skip

    def _origins(self) -> set[str]:
        """Return the books that changed."""
        changes = self.changes
        if not self.working_set.planning:
            return {*changes.books, *changes.cut, *changes.waits}
        books = self.working_set.books.items()
        return {*changes.cut, *(o for o, book in books if book.deficit != self.stored[o].row.deficit)}

    def _sleepers(self) -> list[str]:
        """Return the books that wait for budgets which changed: their places depend on these."""
        names = self.loader.books.buckets.may_wake()
        self.loader.books.load(names)
        return [name for name in names if (self.stored[name].ticket or 0) >= ASLEEP]

    def _moved(self) -> list[str]:
        """Return the ready books that took a new place at the end of their ring, in that order."""
        rings = (self.working_set.high, self.working_set.ring)
        return [origin for ring in rings for origin in ring.moved if self.book(origin).is_ready]

    def _places(self, moved: Iterable[str], ids: Iterable[int]) -> dict[str, int]:
        """Return the tickets of books that moved to the end of their ring, or before its head."""
        working_set = self.working_set
        tickets = dict(zip(moved, ids))
        for ring in (working_set.ring, working_set.high):
            if ring.favoured:
                floor = self.loader.source.state.ticket_floor if ring is working_set.ring else self._high_floor(tickets)
                tickets |= {origin: floor - place for place, origin in enumerate(reversed(ring.favoured), start=1)}
        return tickets

    def _high_floor(self, fresh: Mapping[str, int]) -> int:
        """Return a ticket below which no high book has one: the walk begins with the smallest."""
        stored = {origin: book.ticket for origin, book in self.stored.items() if book.ticket is not None}
        fresh = {**stored, **self.changes.tickets, **fresh}
        return min((ticket for origin, ticket in fresh.items() if is_high(origin) and ticket < ASLEEP), default=0)

    def _book_rows(self, origins: Iterable[str], tickets: Mapping[str, int]) -> list[BookRow]:
        rows = []
        for origin in sorted(origins):
            book, stored = self.book(origin), self.stored[origin]
            stored.ticket = self._ticket(origin, tickets.get(origin, stored.ticket)) if book.is_ready else None
            stored.wake_at = self.done.waits.get(origin, stored.wake_at)
            ahead = codec.pack_numbers(sorted(stored.cut.ahead)) if stored.cut.ahead else b""
            row = BookRow(
                origin, book.begin, book.end, book.count, book.message_count, book.size, stored.ticket, book.deficit,
                stored.cut.floor, ahead, stored.wake_at, *stored.row[11:],
            )  # fmt: skip
            rows.append(row)
        return rows

    def _ticket(self, origin: str, ticket: int | None) -> int | None:
        """Return the ticket of a ready book; one that waits for the budget of its origin stands behind all others."""
        wake_at = self.loader.books.buckets.wake_at(origin)
        return ASLEEP + wake_at if wake_at or (ticket or 0) >= ASLEEP else ticket

    def _state(self) -> StateRow:
        state, ring = self.loader.source.state, self.loader.ring
        return state._replace(
            ticket_floor=self._ticket_floor(), look_floor=ring.look_floor(state.look_floor),
            look_place=ring.places[False], high_place=ring.places[True],
            debt=state.debt if self.working_set.owns_debt else self.working_set.debt,
        )  # fmt: skip

    def _ticket_floor(self) -> int:
        """Return a ticket below which no ready regular book has one."""
        floor = self.loader.source.state.ticket_floor
        tickets = [book.ticket for o, book in self.stored.items() if book.ticket is not None and not is_high(o)]
        tickets += self.loader.ring.least_tickets(floor)
        return min((ticket for ticket in tickets if ticket < ASLEEP), default=floor)

    def _raised_floors(self, origins: Iterable[str]) -> Iterator[tuple[str, tuple[int, int, Collection[int]]]]:
        """Record which inbox rows lie in pages now."""
        for origin in origins:
            inbox, stored = self.loader.inboxes.inboxes.get(origin), self.stored[origin]
            if inbox is None:
                continue
            before, stored.cut = stored.cut, self._without_deleted(origin, stored.cut, inbox.cut_now())
            if stored.cut.floor > before.floor:
                yield origin, (before.floor, stored.cut.floor, {*before.ahead, *inbox.taken})

    def _without_deleted(self, origin: str, before: Cut, cut: Cut) -> Cut:
        """Return a cut without the rows that were deleted, if many are ahead of the floor.

        An open transaction, of any table of the cluster, keeps the floor where it is. No look brings deleted rows.
        Asking each time that the number has doubled takes a constant time for each row.
        """
        count = len(cut.ahead)
        if self.existing is None or count < MANY_AHEAD or count.bit_length() == len(before.ahead).bit_length():
            return cut
        # Rows that this operation took may be inserted by it.
        known = before.ahead & cut.ahead
        return Cut(cut.floor, cut.ahead - known | self.existing(origin, known))

    # Pages.

    def _pages(self) -> Iterator[tuple[str, Page]]:
        """Return the pages that changed: after a plan those that were cut, with their stored progress."""
        changes, pages = self.changes, self.working_set.pages
        if self.working_set.planning:
            for key in sorted(changes.cut_pages):
                page = pages.get(key) or changes.removed_pages[key]
                yield key[0], self.loader.pages.stored.get(key, NO_PAGE).extended_to(page)
            return
        for key in sorted(changes.pages | changes.cut_pages):
            changed = pages.get(key)
            if changed is not None:
                yield key[0], changed

    def _rename(self, ids: Mapping[int, int]) -> None:
        """Give messages that the operation enqueued their final ids."""
        least, horizon = min(ids.values()), self.loader.source.horizon
        if least < horizon:
            raise StoreCorrupt(
                f"id {least} was drawn below the horizon {horizon}: expected ids from the horizon on; nothing was "
                "changed; report this with the output of `airflow-mq check` for this ring"
            )
        changed = map(self.working_set.pages.get, self.changes.pages | self.changes.cut_pages)
        for page in (*filter(None, changed), *self.changes.removed_pages.values()):
            slices = page.slices
            page.slices = Slices([ids.get(row_id, row_id) for row_id in slices.row_ids], slices.starts, slices.counts)
        self.loader.rename_posted(ids)

    def _references(self) -> list[tuple[int, int]]:
        """Return the rows of messages that are gone and referred to external payloads, with their places there."""
        found: list[tuple[int, int]] = []
        for page in self.done.removed_pages.values():
            found += _forget_references(page, range(len(page.marks)))
        for page in filter(None, map(self.working_set.pages.get, self.done.pages)):
            if page.notes:
                found += _forget_references(page, [item for item in page.notes if page.marks[item] == PROCESSED])
        return sorted(found)

    def _aside_rows(self) -> Iterator[tuple[Address, tuple[str, int, int | None]]]:
        """Return the inbox rows of messages that are set aside."""
        found = self.loader.pages.row_ids_of(at for at, aside in self.done.asides.items() if aside is not None)
        for at, (origin, row_id) in found.items():
            page = self.working_set.pages[at.book, at.page]
            if page is not None:
                yield at, (origin, row_id, page.note(at.index).arrived)


def gaps_between(first: int, below: int, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what ranges of first and last ids, in order, leave of the ids from `first` to before `below`."""
    for start, last in ranges:
        if first < min(start, below):
            yield first, min(start, below)
        first = max(first, last + 1)
    if first < below:
        yield first, below


def _forget_references(page: Page, items: Collection[int]) -> list[tuple[int, int]]:
    """Remove the references of these items from a page; return their rows, and their places there."""
    referring = {item for item, note in page.notes.items() if note.blob and item in items}
    if not referring:
        return []
    page.notes.update({item: page.notes[item]._replace(blob=None) for item in referring})
    places = page.slices.places()
    return [place for item, place in enumerate(places) if item in referring]


class Writer:
    """Writes to one ring in a transaction that holds it."""

    def __init__(self, unit: Unit, ring_id: int) -> None:
        self.unit = unit
        self.ring_id = ring_id

    def write(self, rows: ChangedRows, *, allow_high: bool) -> None:
        """Store everything that changed.

        :param allow_high: the ring has no high books yet, and may get some now.
        """
        self._write_posted(rows, allow_high)
        inner = [(origin, page.slices.row_ids[1:-1]) for (origin, _), page in rows.removed_pages.items()]
        # All rows between two ids: no other row should have an id among those of a page.
        ranges = [RowRange(origin, min(ids), max(ids), len(ids)) for origin, ids in inner if ids]
        all_deleted = self._write_pages(rows, ranges)
        check_floors = self._floors_check(rows, ranges)
        self.unit.books.save(self.ring_id, rows.books)
        self.unit.origins.save_groups(self.ring_id, rows.groups)
        if rows.buckets:
            self.unit.origins.save_buckets(self.ring_id, rows.buckets)
        self._write_events(rows)
        self.unit.rings.save_state(self.ring_id, rows.state)
        if not all_deleted():
            self.unit.inbox.delete(self.ring_id, ((origin, id_, None) for origin, ids in inner for id_ in ids))
            check_floors = self._floors_check(rows, ())
        check_floors()

    def _write_posted(self, rows: ChangedRows, allow_high: bool) -> None:
        if rows.posted:
            if allow_high and any(is_high(posted.origin) for posted in rows.posted.values()):
                self.unit.rings.allow_high(self.ring_id)
            self.unit.inbox.insert(self.ring_id, starmap(posted_row, rows.posted.items()))
        if rows.put_off:
            ids = self.unit.fresh_ids(len(rows.put_off))
            self.unit.inbox.put_off(self.ring_id, [delayed_row(id_, *one) for id_, one in zip(ids, rows.put_off)])

    def _write_pages(self, rows: ChangedRows, ranges: Sequence[RowRange]) -> Callable[[], bool]:
        """Write pages, and delete those that are removed with their rows; the answer is whether all ranges went."""
        edges = {
            (origin, row_id, index)
            for (origin, index), page in rows.removed_pages.items()
            for row_id in (page.slices.row_ids[0], page.slices.row_ids[-1])
        }
        self.unit.pages.save(self.ring_id, rows.pages)
        self.unit.pages.delete(self.ring_id, list(rows.removed_pages))
        all_deleted = self.unit.inbox.delete_ranges(self.ring_id, ranges)
        self.unit.inbox.delete(self.ring_id, sorted(edges))
        self.unit.payloads.release(rows.references)
        return all_deleted

    def _floors_check(self, rows: ChangedRows, emptied: Iterable[RowRange]) -> Callable[[], None]:
        """Return a check that raises `StoreCorrupt` if the floor of an inbox would pass a row that lies in no page.

        :param emptied: ranges of ids that hold no row
        """
        ranges: dict[str, list[tuple[int, int]]] = {}
        for gone in emptied:
            ranges.setdefault(gone.origin, []).append((gone.first, gone.last))
        wanted = [
            (origin, first, below)
            for origin, (before, after, _) in rows.raised_floors.items()
            for first, below in gaps_between(before, after, sorted(ranges.get(origin, ())))
        ]
        found = self.unit.inbox.ids_between(self.ring_id, wanted)

        def check() -> None:
            for origin, ids in found():
                _, floor, cut = rows.raised_floors[origin]
                lost = sorted(set(ids).difference(cut))
                if lost:
                    raise StoreCorrupt(
                        f"saving would strand messages of {told(origin)}: inbox rows {lost[:5]} lie below its new "
                        f"floor {floor} and in no page; nothing was changed; report this with the "
                        "output of `airflow-mq check` for this ring"
                    )

        return check

    def _write_events(self, rows: ChangedRows) -> None:
        events: Iterable[EventRun] = rows.events
        if rows.asides:
            arrivals = rows.arrivals(self.unit, self.ring_id)
            self.unit.set_aside.save(self.ring_id, rows.set_aside(arrivals))
            events = dated(events, arrivals)
        if rows.events:
            self.unit.events.save(self.ring_id, events, rows.now, rows.block)
        if rows.charges:
            self.unit.charges.insert(self.ring_id, rows.charges, rows.now, rows.block, rows.server)
