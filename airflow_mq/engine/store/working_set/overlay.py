"""Overlay: a source that reads changed rows back from memory, above a store that nothing is written to.

Only rows that the next operation reads are kept: books, groups, pages and inbox rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, starmap
from operator import itemgetter
from typing import Any, TypeAlias

from ...rules.changes import CutTotal, PutOff
from ...rules.message import Address
from ...rules.page import Page, Rows
from ...rules.priority import books_of, is_high, origin_of
from ...rules.working_set import WorkingSet
from .. import codec
from ..blocks import ClaimRow
from ..inbox import MOST_DUE, RowIds
from ..origins import BucketRow, GroupRow
from ..rows import ASLEEP, LATEST, BookRow, InboxRow, PageRow, PlainRow, posted_row
from ..set_aside import AsideRow
from ..store import AnyStore
from ..unit import Unit
from .books import StoredBook
from .source import Shift, Source
from .writer import ChangedRows

#: Ids that an overlay draws: above all stored ones, below those of messages that are not written yet.
FIRST_ID = 1 << 61
#: Settings of origins by name.
SettingsByOrigin: TypeAlias = "Mapping[str, Mapping[str, object]]"
#: Number of rows that one look for the first remaining one brings.
LOOK = 16


class Overlay(Source):
    """Reads of one moment, and above them the rows that operations would have stored since."""

    leaves_out = False

    def __init__(
        self,
        store: AnyStore,
        unit: Unit,
        ring_id: int,
        settings: SettingsByOrigin | None = None,
        *,
        anew: bool = False,
        joins_due: bool = True,
    ) -> None:
        """Begin with what is stored, and with the rows that are due by now.

        :param settings: settings that replace stored ones, by origin: `{"acme": {"share": 3}}`.
        :param anew: read all deficits as if no queue had used anything yet.
        :param joins_due: let delayed messages that are due join their queues
        """
        newest, *_ = unit.inbox.pulse(ring_id)
        # Reads of one moment bring nothing late.
        super().__init__(store, unit, ring_id, unit.rings.state(ring_id), newest + 1)
        self.settings_said = dict(settings or {})
        self.anew = anew
        self.now = unit.now()
        #: When the last delayed row that joined its queue here was due, and its id.
        self._joined = self.now, LATEST
        self._next_id = FIRST_ID
        self._books: dict[str, BookRow] = {}
        self._groups: dict[str, GroupRow] | None = None
        self._buckets: dict[str, BucketRow] = {}
        self._pages: dict[str, dict[int, PageRow | None]] = {}
        self._rows: dict[str, list[InboxRow]] = {}
        self._gone: set[tuple[str, int]] = set()
        #: Claims of live blocks by book, once a block has ended here.
        self._held: dict[str, list[ClaimRow]] | None = None
        self._ended: set[int] = set()
        self._shifts: dict[str, Shift] = {}
        self._asides: dict[Address, AsideRow | None] = {}
        #: Payloads of messages that operations enqueued, by id.
        self._payloads: dict[int, bytes] = {}
        #: Messages that wait aside, until the time that passes here brings them back.
        self._put_off: list[PutOff] = []
        if joins_due:
            self.arrive(unit.inbox.due(ring_id, self.now))

    # Changes.

    def fresh_ids(self, count: int) -> list[int]:
        """Return new ids, larger than all that are stored."""
        self._next_id += count
        return list(range(self._next_id - count, self._next_id))

    def apply(self, rows: ChangedRows) -> None:
        """Keep the rows that an operation would have stored."""
        self._payloads |= {id_: one.payload for id_, one in rows.posted.items()}
        self._put_off += (one for one, _ in rows.put_off)
        self._add(list(starmap(posted_row, rows.posted.items())))
        for page, *_ in rows.pages:
            self._pages.setdefault(page.origin, {})[page.page] = page
        for origin, index in rows.removed_pages:
            self._pages.setdefault(origin, {})[index] = None
        self._forget_rows(rows.removed_pages)
        self._books |= {book.origin: book for book in rows.books}
        self._apply_groups(rows.groups)
        self._buckets |= {row.path: row for row in rows.buckets}
        self._asides |= rows.set_aside(rows.arrivals(self.unit, self.ring_id))
        self.state = rows.state

    def arrive(self, rows: Iterable[InboxRow]) -> None:
        """Let messages join their queues behind all others."""
        fresh = list(rows)
        self._add(
            [
                row._replace(id=id_, lengths=bytes(row.lengths), attributes=bytes(row.attributes), heap=None)
                for id_, row in zip(self.fresh_ids(len(fresh)), fresh)
            ]
        )

    def pass_time(self, microseconds: int) -> None:
        """Let time pass: messages that are due by then join their queues."""
        self.now += microseconds
        due = self.unit.inbox.delayed(self.ring_id, *self._joined, MOST_DUE["most"], until=self.now)
        if due:
            self._joined = due[-1][0], due[-1][1].id
        self.arrive(row for _, row in due)
        self.arrive(posted_row(0, one.posted) for one in self._put_off if one.due <= self.now)
        self._put_off = [one for one in self._put_off if one.due > self.now]
        paused = [name for name, book in self._books.items() if book.paused]
        for book in super().books(paused, self.now) if paused else ():
            self._books[book.origin] = self._books[book.origin]._replace(paused=book.paused)

    def _apply_groups(self, rows: Iterable[GroupRow]) -> None:
        known = {row.path: row for row in self.groups()}
        for row in rows:
            before = known.get(row.path)
            if before is not None:
                row = row._replace(deficit=before.deficit + row.delta, level=min(before.level, row.level))
            known[row.path] = row._replace(delta=0)
        self._groups = known

    def _forget_rows(self, removed: Mapping[tuple[str, int], Page]) -> None:
        """Forget the rows of removed pages, except those of which a neighbouring page holds some messages."""
        if not removed:
            return
        kept = set()
        for row in self.pages([(origin, index - 2, index + 2) for origin, index in removed], 5):
            row_ids = codec.unpack_slices(row.slices).row_ids
            kept |= {(row.origin, row_ids[0]), (row.origin, row_ids[-1])}
        for (origin, _), page in removed.items():
            self._gone |= {(origin, row_id) for row_id in page.slices.row_ids} - kept

    def note_shifts(self, working_set: WorkingSet, stored: Mapping[str, StoredBook]) -> None:
        """Add up by what an operation changes the messages of each queue, before its changes are kept."""
        changes = working_set.changes
        for name in {*changes.books, *changes.cut}:
            book, row, cut = working_set.books[name], stored[name].row, changes.cut.get(name) or CutTotal()
            self._shift(name, book.message_count - row.messages - cut.messages, book.size - row.size - cut.size)
        for id_, posted in changes.posted.items():
            self._shift(posted.origin, 1, Rows.of_posted(id_, posted).size)
        for put_off in changes.put_off:
            self._shift(put_off.posted.origin, delayed=1)
        for address, aside in changes.asides.items():
            key = address.book, address.page
            page = changes.removed_pages.get(key) or working_set.pages.get(key)
            size, kept = 0 if page is None else page.held_of(address.index), -1 if aside is None else 1
            self._shift(address.book, -kept, -kept * size, kept, kept * size)

    def _shift(self, name: str, *counts: int, delayed: int = 0) -> None:
        """Add counts: messages, their size, set-aside messages, and the size of these."""
        self._shifts[name] = self._shifts.get(name, Shift()).plus(Shift(*counts)._replace(delayed=delayed))

    def shown(self) -> Mapping[str, int | None]:
        changed = {*self._rows, *self._shifts} & self._books.keys()
        return {name: self._books[name].ticket for name in sorted(changed)}

    def shown_asides(self) -> Mapping[Address, AsideRow | None]:
        return self._asides

    def shift(self, name: str | None = None) -> Shift:
        if name is None:
            return reduce(Shift.plus, self._shifts.values(), Shift())
        book = self._books.get(name)
        ahead = codec.unpack_numbers(book.ahead)[0] if book is not None and book.ahead else ()
        floor = 0 if book is None else book.floor
        uncut = [row for row in self._rows.get(name, ()) if row.id >= floor and row.id not in ahead]
        shift = self._shifts.get(name, Shift())
        return shift._replace(uncut=sum(row.items for row in uncut), uncut_size=sum(row.size for row in uncut))

    def end_blocks(self, ended: Collection[int]) -> None:
        """Forget the claims of these blocks."""
        self._ended |= set(ended)
        self._held = {}
        for row in self.unit.blocks.in_flight(self.ring_id):
            if row.block not in self._ended:
                self._held.setdefault(row.origin, []).append(row)
        for origin, book in self._books.items():
            self._books[origin] = self._seen(book)

    def _add(self, rows: Sequence[InboxRow]) -> None:
        for row in rows:
            self._rows.setdefault(row.origin, []).append(row)
        fresh = [origin for origin in dict.fromkeys(row.origin for row in rows) if origin not in self._books]
        self._books |= {book.origin: book for book in self.books(fresh, self.now)}

    # Books and the ring.

    @property
    def last_id(self) -> int:
        return self.horizon - 1

    def ready_books(self, after: int, limit: int, now: int, *, high: bool) -> list[BookRow]:
        found: list[BookRow] = []
        at, more = after, True
        while more and len(found) < limit:
            rows = super().ready_books(at, limit, now, high=high)
            found += [self._seen(row) for row in rows if row.origin not in self._books]
            more = len(rows) == limit
            at = rows[-1].ticket or 0 if rows else at
        found += [row for ticket, row in self._own(high=high) if after < ticket < ASLEEP]
        return sorted(found, key=lambda row: (row.ticket or 0, row.origin))[:limit]

    def turns_before(self, before: int, limit: int, *, high: bool) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        at, more = before, True
        while more and len(found) < limit:
            rows = super().turns_before(at, limit, high=high)
            found += [row for row in rows if row[1] not in self._books]
            more = len(rows) == limit
            at = rows[-1][0] if rows else at
        last = min(before, ASLEEP)
        found += [(ticket, row.origin) for ticket, row in self._own(high=high) if ticket < last]
        return sorted(found, reverse=True)[:limit]

    def woken(self, limit: int, now: int, *, high: bool) -> list[str]:
        found = [name for name in super().woken(limit + len(self._books), now, high=high) if name not in self._books]
        found += [row.origin for ticket, row in self._own(high=high) if ASLEEP <= ticket <= ASLEEP + now]
        # Books with replaced settings: their budgets are others.
        said = [name for origin in self.settings_said for name in books_of(origin) if is_high(name) == high]
        unseen = self.books([name for name in said if name not in self._books], now)
        found += [row.origin for row in unseen if (row.ticket or 0) > ASLEEP + now]
        return found[:limit]

    def _own(self, *, high: bool) -> Iterator[tuple[int, BookRow]]:
        """Yield the ready books of a priority that changed, with their tickets."""
        own = (row for row in self._books.values() if is_high(row.origin) == high)
        return ((row.ticket, row) for row in own if row.ticket is not None)

    def books(self, origins: Sequence[str], now: int) -> list[BookRow]:
        unknown = [origin for origin in origins if origin not in self._books]
        rows = [self._seen(row) for row in super().books(unknown, now)] if unknown else []
        return rows + [self._books[origin] for origin in origins if origin in self._books]

    def guaranteed(self) -> list[str]:
        books = self.books(super().guaranteed(), self.now)
        return [book.origin for book in sorted(books, key=lambda b: (b.ticket is None, b.ticket or 0, b.origin))]

    def _seen(self, row: BookRow) -> BookRow:
        """Return a stored book with replaced settings, and with what is in flight by now."""
        if self.anew:
            row = row._replace(deficit=0)
        if origin_of(row.origin) in self.settings_said:
            row = row._replace(settings=self._replaced(origin_of(row.origin), row.settings))
        if self._held is not None and row.in_flight:
            both = books_of(origin_of(row.origin))
            row = row._replace(in_flight=any(_holds(claim) for name in both for claim in self._held.get(name, ())))
        return row

    def _replaced(self, origin: str, stored: Any) -> bytes:
        return codec.write_json({**(codec.read_json(stored) or {}), **self.settings_said[origin]})

    def news_by_id(self, start: int, below: int) -> list[tuple[int, str]]:
        return self._news(super().news_by_id(start, below), start, below)

    def news_by_origin(self, known: Iterable[str] = ()) -> list[tuple[int, str]]:
        return self._news(super().news_by_origin(known), 0, FIRST_ID << 1)

    def high_news(self) -> list[tuple[int, str]]:
        return [one for one in self._news(super().high_news(), 0, FIRST_ID << 1) if is_high(one[1])]

    def _news(self, stored: Iterable[tuple[int, str]], start: int, below: int) -> list[tuple[int, str]]:
        found = [row for row in stored if row[1] not in self._books]
        waiting = {row.origin: max(start, row.floor) - 1 for row in self._books.values() if row.ticket is None}
        while waiting:
            ids: dict[str, list[int]] = {origin: [] for origin in waiting}
            for origin, id_, *_ in self.inbox_rows(list(waiting.items()), LOOK):
                ids[origin].append(id_)
            firsts = {o: next((id_ for id_ in ids[o] if (o, id_) not in self._gone), None) for o in waiting}
            found += [(first, origin) for origin, first in firsts.items() if first is not None and first < below]
            waiting = {o: ids[o][-1] for o in waiting if firsts[o] is None and len(ids[o]) == LOOK}
        return sorted(found)

    # Groups.

    def line(self, without: Iterable[str] = ()) -> list[tuple[int, str, int]]:
        found = [row for row in super().line(without) if row[1] not in self._books]
        if self.anew:
            found = [(ticket, origin, 0) for ticket, origin, _ in found]
        both = chain(self._own(high=True), self._own(high=False))
        own = [(ticket, row.origin, row.deficit) for ticket, row in both if ticket < ASLEEP]
        return sorted(found + own)

    def groups(self) -> list[GroupRow]:
        """Return all groups as they stand by now."""
        if self._groups is None:
            self._groups = {} if self.anew else {row.path: row for row in super().groups()}
        return list(self._groups.values())

    def settings(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        found: dict[str, Any] = dict(super().settings(names))
        found |= {name: self._replaced(name, found.get(name)) for name in names if name in self.settings_said}
        return list(found.items())

    def buckets(self, names: Sequence[str]) -> list[BucketRow]:
        found = {row.path: row for row in super().buckets([name for name in names if name not in self._buckets])}
        return [*found.values(), *(self._buckets[name] for name in names if name in self._buckets)]

    def halted(self, now: int, *, origins: bool = False) -> tuple[list[str], list[str]]:
        paused, exhausted = super().halted(now, origins=origins)
        own = [row.path for row in self._buckets.values() if row.wake_at > now]
        return paused, [*own, *(name for name in exhausted if name not in self._buckets)]

    # Pages and inbox rows.

    def pages(self, wanted: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        changed = [one for one in wanted if one[0] in self._pages]
        plain = [one for one in wanted if one[0] not in self._pages]
        found = super().pages(plain, limit) if plain else []
        if not changed:
            return found
        more = max(len(self._pages[origin]) for origin, _, _ in changed)
        stored: dict[str, dict[int, PageRow | None]] = {}
        for row in super().pages(changed, limit + more):
            stored.setdefault(row.origin, {})[row.page] = row
        for origin, first, last in changed:
            pages = {**stored.get(origin, {}), **self._pages[origin]}
            within = [row for index, row in sorted(pages.items()) if first <= index <= last]
            found += [row for row in within if row is not None][:limit]
        return found

    def inbox_rows(self, wanted: Sequence[tuple[str, int]], limit: int, inline: int = 0) -> list[PlainRow]:
        found = super().inbox_rows(wanted, limit, inline)
        counts = Counter(row[0] for row in found) if self._rows else {}
        for origin, after in wanted if self._rows else ():
            own = [row for row in self._rows.get(origin, ()) if row.id > after]
            found += own[: limit - counts.get(origin, 0)]
        return found

    def heaps(self, wanted: RowIds) -> list[PlainRow]:
        own = self._payloads
        found = super().heaps({origin: [id_ for id_ in ids if id_ not in own] for origin, ids in wanted.items()})
        sent = ((origin, id_, own[id_]) for origin, ids in wanted.items() for id_ in ids if id_ in own)
        return found + [InboxRow(origin, id_, len(heap), 1, False, b"", b"", heap=heap) for origin, id_, heap in sent]

    def delayed_of(self, name: str, now: int) -> tuple[int, int | None]:
        count, due = super().delayed_of(name, now)
        own = [one.due for one in self._put_off if name == one.posted.origin]
        return count + len(own), min([*own, *([] if due is None else [due])], default=None)

    def delayed_rows(self, now: int, limit: int, until: int = LATEST) -> list[tuple[int, InboxRow]]:
        own = [(one.due, posted_row(0, one.posted)) for one in self._put_off if one.due <= until]
        return sorted([*super().delayed_rows(now, limit, until), *own], key=itemgetter(0))[:limit]

    def put_off_from(self, name: str, place: tuple[int, int]) -> int | None:
        own = (one.due for one in self._put_off if one.posted.origin == name and (one.page.index, one.item) == place)
        return next(own, None) or super().put_off_from(name, place)

    def claims_of(self, origins: Sequence[str]) -> list[ClaimRow]:
        if self._held is None:
            return super().claims_of(origins)
        return [claim for origin in origins for claim in self._held.get(origin, ())]


def _holds(claim: ClaimRow) -> bool:
    """Return whether a claim holds any message of its queue's window."""
    return not claim.by_hand and any(run.count for run in claim.claim.runs)
