"""A store that forgets: what is written through it is read back through it, and goes nowhere.

Whoever wants to know what blocks would do lets them do it here. Only what the next block
could see is remembered: books, pages, and mail. Everything else that is written is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..core.errors import StoreReadOnly
from ..core.events import EventRun
from ..core.message import Address
from ..core.page import Page
from ..core.priority import books_of, is_high, origin_of
from ..core.shelf import Aside
from . import codec
from .blocks import Blocks, ClaimRow
from .books import Books, LineRow
from .events import Events
from .inbox import Inbox
from .loans import Loans
from .origins import GroupRow, Origins, SettingsRow
from .pages import Pages, stored_page
from .rings import Rings
from .rows import PLANNED, Arrival, BookRow, FirstRow, Locked, MailRow, PageRow, StateRow
from .set_aside import SetAside
from .store import Outgoing
from .unit import Unit

#: Ids that are given out here: above all that are stored, below those of mail that is not written yet.
FIRST_ID = 1 << 61
#: How much mail one look for the first that is left brings.
LOOK = 16


class PretendUnit(Unit):
    """Reads of one moment, and above them what would have been written since."""

    def __init__(
        self, unit: Unit, ring: int, standings: Mapping[str, Mapping[str, Any]] | None = None, *, anew: bool = False
    ) -> None:
        self.unit, self.ring_id = unit, ring
        #: What is set of some origins, in the place of what is stored: `{"acme": {"share": 3}}`.
        self.said = dict(standings or {})
        #: Whether all deficits are as if nobody had used anything yet.
        self.anew = anew
        self._branches: dict[str, GroupRow] | None = None
        self.began = unit.now()
        ticket_floor, look_floor, _ = unit.rings.floors(ring)
        self.state = StateRow(0, ticket_floor, look_floor, [], None, 0, "")
        self.last_id = unit.inbox.pulse(ring, self.began).newest
        #: Mail below this is all there: nothing comes late into reads of one moment.
        self.horizon = self.last_id + 1
        self._next_id = FIRST_ID
        self._books: dict[str, BookRow] = {}
        self._pages: dict[str, dict[int, PageRow | None]] = {}
        self._mail: dict[str, list[MailRow]] = {}
        self._gone: set[tuple[str, int]] = set()
        #: What is in flight, by origin, once a block has ended here: its claims, and whether each holds anything.
        self._held: dict[str, list[tuple[bytes, bool]]] | None = None
        self._promote_due()

    draws_ids = False

    @property
    def books(self) -> Books:
        """Books of this unit."""
        return _Books(self)

    @property
    def pages(self) -> Pages:
        """Pages of this unit."""
        return _Pages(self)

    @property
    def inbox(self) -> Inbox:
        """Inbox of this unit."""
        return _Inbox(self)

    @property
    def origins(self) -> Origins:
        """Origins of this unit."""
        return _Origins(self)

    @property
    def blocks(self) -> Blocks:
        """Blocks of this unit."""
        return _Blocks(self)

    @property
    def loans(self) -> Loans:
        """Loans of this unit."""
        return _Loans(self)

    @property
    def rings(self) -> Rings:
        """Rings of this unit."""
        return _Rings(self)

    @property
    def set_aside(self) -> SetAside:
        """SetAside of this unit."""
        return _SetAside(self)

    @property
    def events(self) -> Events:
        """Events of this unit."""
        return _Events(self)

    # The primitives.

    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Read what is stored."""
        return self.unit.rows(statement, **values)

    def guaranteed(self, ring: int) -> list[str]:
        """Return origins with what is ready by now first, in the ring's order."""
        names = self.unit.books.guaranteed(ring)
        books = self.named_books(ring, names, self.began) if names else []
        books.sort(key=lambda book: (book.ticket is None, book.ticket or 0, book.origin))
        return [book.origin for book in books]

    def rows_for(self, statement: str, columns: Mapping[str, Sequence[Any]], **values: Any) -> list[Any]:
        """Read what is stored."""
        return self.unit.rows_for(statement, columns, **values)

    def run(self, statement: str, **values: Any) -> int:
        """Nothing else that is written matters to the next block."""
        return 0

    def run_for(self, statement: str, columns: Mapping[str, Sequence[Any]], **values: Any) -> None:
        """Nothing else that is written matters to the next block."""

    def fresh_ids(self, count: int) -> list[int]:
        """New ids, larger than all that are stored."""
        self._next_id += count
        return list(range(self._next_id - count, self._next_id))

    def now(self) -> int:
        """Time stands still."""
        return self.began

    def lock(self, ring: int) -> Locked:
        """Nobody holds a ring by this."""
        raise StoreReadOnly("a ring is not locked by whoever only looks ahead")

    def try_lock(self, ring: int) -> Locked | None:
        """Nobody holds a ring by this."""
        return self.lock(ring)

    # Books and the ring.

    def ready_books(self, ring: int, after: int, limit: int, now: int) -> list[BookRow]:
        """Ready books in the ring's order."""
        found: list[BookRow] = []
        at, more = after, True
        while more and len(found) < limit:
            rows = self.unit.books.ready(ring, at, limit, now)
            found += [self._seen(row) for row in rows if row.origin not in self._books]
            more = len(rows) == limit
            at = rows[-1].ticket or 0 if rows else at
        found += [row for row in self._books.values() if row.ticket is not None and row.ticket > after]
        return sorted(found, key=lambda row: (row.ticket or 0, row.origin))[:limit]

    def named_books(self, ring: int, origins: Sequence[str], now: int) -> list[BookRow]:
        """Books by name."""
        unknown = [origin for origin in origins if origin not in self._books]
        rows = [self._seen(row) for row in self.unit.books.named(ring, unknown, now)] if unknown else []
        return rows + [self._books[origin] for origin in origins if origin in self._books]

    def _seen(self, row: BookRow) -> BookRow:
        """A stored book under other shares, with what is in flight by now."""
        if self.anew:
            row = row._replace(deficit=0)
        if origin_of(row.origin) in self.said:
            row = row._replace(standing=self._with_said(origin_of(row.origin), row.standing))
        if self._held is not None and row.in_flight:
            both = books_of(origin_of(row.origin))
            row = row._replace(in_flight=any(held for name in both for _, held in self._held.get(name, ())))
        return row

    def _with_said(self, origin: str, stored: Any) -> Any:
        plain = codec.read_json(stored) if isinstance(stored, str) else stored or {}
        return {**plain, **self.said[origin]}

    def save_books(self, ring: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Remember books as they stand."""
        known = {row.origin: row for row in self.named_books(ring, [row[0] for row in rows], self.began)}
        for row in rows:
            self._books[row[0]] = BookRow(*row, *known[row[0]][len(row) :])

    def news_by_id(self, ring: int, start: int, below: int) -> list[FirstRow]:
        """Origins that are not ready and have mail among these ids, with their first one."""
        return self._news(self.unit.inbox.unready_from(ring, start, below), start, below)

    def news_by_origin(self, ring: int) -> list[FirstRow]:
        """Origins that are not ready and have mail, with their first one."""
        return self._news(self.unit.inbox.unready(ring), 0, FIRST_ID << 1)

    def high_news(self, ring: int) -> list[FirstRow]:
        """High books that are not ready and have mail, with their first one."""
        found = self._news(self.unit.inbox.unready_high(ring), 0, FIRST_ID << 1)
        return [one for one in found if is_high(one[0])]

    def _news(self, stored: Iterable[tuple[str, int]], start: int, below: int) -> list[FirstRow]:
        found = [FirstRow(origin, id_) for origin, id_ in stored if origin not in self._books]
        waiting = {row.origin: max(start, row.floor) - 1 for row in self._books.values() if row.ticket is None}
        while waiting:
            its: dict[str, list[int]] = {origin: [] for origin in waiting}
            for row in self.mail_after(self.ring_id, list(waiting.items()), LOOK):
                its[row.origin].append(row.id)
            later: dict[str, int] = {}
            for origin, ids in its.items():
                left = next((id_ for id_ in ids if (origin, id_) not in self._gone), None)
                if left is not None and left < below:
                    found.append(FirstRow(origin, left))
                elif left is None and len(ids) == LOOK:
                    later[origin] = ids[-1]
            waiting = later
        return sorted(found, key=lambda one: one[1])

    # Groups of origins.

    def line(self, ring: int) -> list[LineRow]:
        """All ready books in the ring's order: ticket, origin, deficit."""
        found = [row for row in self.unit.books.line(ring) if row[1] not in self._books]
        if self.anew:
            found = [row._replace(deficit=0) for row in found]
        own = [LineRow(row.ticket, row.origin, row.deficit) for row in self._books.values() if row.ticket is not None]
        return sorted(found + own)

    def branches(self, ring: int) -> list[GroupRow]:
        """All groups as they stand by now."""
        if self._branches is None:
            self._branches = {} if self.anew else {row[0]: row for row in self.unit.origins.groups(ring)}
        return list(self._branches.values())

    def standings(self, ring: int, origins: Sequence[str]) -> list[SettingsRow]:
        """What is set under these names, under other shares."""
        found: dict[str, Any] = dict(self.unit.origins.settings(ring, origins))
        found |= {name: self._with_said(name, found.get(name)) for name in origins if name in self.said}
        return [SettingsRow(*pair) for pair in found.items()]

    def save_branches(self, ring: int, rows: Sequence[tuple[str, int, int, int, str]]) -> None:
        """Remember groups as they stand."""
        known = {row[0]: row for row in self.branches(ring)}
        for path, deficit, delta, level, owed in rows:
            was = known.get(path)
            known[path] = GroupRow(path, deficit, level, owed) if was is None else GroupRow(
                path, was.deficit + delta, min(was.level, level), owed
            )  # fmt: skip
        self._branches = known

    # Pages.

    def stored_pages(self, ring: int, wanted: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        """For each (origin, first, last): its pages from the first on, so many at most."""
        changed = [one for one in wanted if one[0] in self._pages]
        plain = [one for one in wanted if one[0] not in self._pages]
        found = self.unit.pages.between(ring, plain, limit) if plain else []
        if not changed:
            return found
        more = max(len(self._pages[origin]) for origin, _, _ in changed)
        stored: dict[str, dict[int, PageRow | None]] = {}
        for row in self.unit.pages.between(ring, changed, limit + more):
            stored.setdefault(row.origin, {})[row.page] = row
        for origin, first, last in changed:
            pages = {page: row for page, row in stored.get(origin, {}).items() if first <= page <= last}
            pages |= {page: one for page, one in self._pages[origin].items() if first <= page <= last}
            found += [one for _, one in sorted(pages.items()) if one is not None][:limit]
        return found

    def save_pages(self, ring: int, pages: Sequence[tuple[str, Page, int]]) -> None:
        """Remember pages as they stand."""
        for entry in pages:
            row = stored_page(*entry)
            self._pages.setdefault(row[0], {})[row[1]] = PageRow(*row[:7], *row[10:])

    def delete_pages(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        """Forget pages."""
        for origin, page in keys:
            self._pages.setdefault(origin, {})[page] = None

    # Mail.

    def mail_after(self, ring: int, wanted: Sequence[tuple[str, int]], limit: int, inline: int = 0) -> list[MailRow]:
        """For each (origin, id): the mail after that id, so many at most; what is in pages, or gone, among it."""
        found = self.unit.inbox.after(ring, wanted, limit, inline)
        counts = Counter(row.origin for row in found) if self._mail else {}
        for origin, after in wanted if self._mail else ():
            if origin in self._mail:
                room = limit - counts.get(origin, 0)
                found += [row for row in self._mail[origin] if row.id > after][:room]
        return found

    def insert_mail(self, ring: int, rows: Sequence[tuple[int, str, bytes]]) -> None:
        """Remember what processors sent."""
        self._add([MailRow(origin, id_, len(payload), 1, False, b"", b"") for id_, origin, payload in rows])

    def delete_mail(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        """Forget mail that lay in a single page."""
        self._gone.update(keys)

    def delete_shared_mail(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        """Forget mail at the edge of a page, unless a neighbouring page still holds some of it."""
        if not keys:
            return
        near = self.stored_pages(ring, [(origin, page - 2, page + 2) for origin, _, page in keys], 5)
        kept = set()
        for row in near:
            slices = codec.unpack_slices(row.slices)
            kept |= {(row.origin, slices[0].mail), (row.origin, slices[-1].mail)}
        self._gone.update((origin, id_) for origin, id_, _ in keys if (origin, id_) not in kept)

    def let_go(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        """Forget mail of pages that have loans; who borrows from it reads what is stored."""
        self.delete_shared_mail(ring, keys)

    def _promote_due(self) -> None:
        """Mail that is due joins its queue, as it would when the next block is planned."""
        rows = self.unit.inbox.due(self.ring_id, self.began)
        ids = self.fresh_ids(len(rows))
        self._add([MailRow(origin, id_, size, items, more, bytes(lengths), bytes(attributes))
                   for id_, (origin, _, size, items, more, lengths, attributes, _) in zip(ids, rows)])  # fmt: skip

    def arrive(self, rows: Iterable[Outgoing]) -> None:
        """Mail that arrives now, as if it had been sent before the next block is planned."""
        rows = list(rows)
        self._add([MailRow(row.origin, id_, row.size, row.items, row.more, row.lengths, row.attributes)
                   for id_, row in zip(self.fresh_ids(len(rows)), rows)])  # fmt: skip
        self.last_id = self._next_id - 1
        self.horizon = self._next_id

    def _add(self, rows: Sequence[MailRow]) -> None:
        for row in rows:
            self._mail.setdefault(row.origin, []).append(row)
        fresh = [origin for origin in dict.fromkeys(row.origin for row in rows) if origin not in self._books]
        for book in self.named_books(self.ring_id, fresh, self.began) if fresh else ():
            self._books[book.origin] = book

    # What became of messages is of no concern here.

    def save_asides(
        self, ring: int, asides: Mapping[Address, Aside | None], now: int, block: int | None = None,
        arrivals: Mapping[Address, Arrival] | None = None,
    ) -> None:  # fmt: skip
        """Not remembered."""

    def arrivals(self, ring: int, mails: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Arrival]:
        """Nobody asks when what is not remembered arrived."""
        return {}

    def save_events(self, ring: int, runs: Iterable[EventRun], now: int, block: int | None = None) -> None:
        """Not remembered."""

    def save_state(self, ring: int, state: StateRow, ticket_floor: int, look_floor: int) -> None:
        """Remember the floors."""
        self.state = state._replace(ticket_floor=ticket_floor, look_floor=look_floor)

    # Blocks.

    def claims_of(self, ring: int, origins: Sequence[str]) -> list[ClaimRow]:
        """What live blocks hold of these origins."""
        if self._held is None:
            return self.unit.blocks.claims_on(ring, origins)
        return [ClaimRow(origin, data) for origin in origins for data, _ in self._held.get(origin, ())]

    def end_blocks(self, ended: Collection[int]) -> None:
        """Let go of what these blocks held."""
        self._held = {}
        for block in self.unit.blocks.latest(self.ring_id, PLANNED):
            for origin, data in self.unit.blocks.claims(block.id) if block.id not in ended else ():
                held = not block.by_hand and any(run.count for run in codec.unpack_claim(origin, bytes(data)).runs)
                self._held.setdefault(origin, []).append((bytes(data), held))
        for origin, book in self._books.items():
            self._books[origin] = self._seen(book)


class _Books(Books):
    unit: PretendUnit

    def ready(self, ring: int, after: int, limit: int, now: int) -> list[BookRow]:
        return self.unit.ready_books(ring, after, limit, now)

    def named(self, ring: int, origins: Sequence[str], now: int) -> list[BookRow]:
        return self.unit.named_books(ring, origins, now)

    def save(self, ring: int, rows: Sequence[tuple[Any, ...]]) -> None:
        return self.unit.save_books(ring, rows)

    def line(self, ring: int) -> list[LineRow]:
        return self.unit.line(ring)

    def guaranteed(self, ring: int) -> list[str]:
        return self.unit.guaranteed(ring)


class _Pages(Pages):
    unit: PretendUnit

    def between(self, ring: int, wanted: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        return self.unit.stored_pages(ring, wanted, limit)

    def save(self, ring: int, pages: Sequence[tuple[str, Page, int]]) -> None:
        return self.unit.save_pages(ring, pages)

    def delete(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        return self.unit.delete_pages(ring, keys)


class _Inbox(Inbox):
    unit: PretendUnit

    def after(self, ring: int, wanted: Sequence[tuple[str, int]], limit: int, inline: int = 0) -> list[MailRow]:
        return self.unit.mail_after(ring, wanted, limit, inline)

    def unready_from(self, ring: int, start: int, below: int) -> list[FirstRow]:
        return self.unit.news_by_id(ring, start, below)

    def unready(self, ring: int) -> list[FirstRow]:
        return self.unit.news_by_origin(ring)

    def unready_high(self, ring: int) -> list[FirstRow]:
        return self.unit.high_news(ring)

    def insert(self, ring: int, rows: Sequence[tuple[int, str, bytes]]) -> None:
        return self.unit.insert_mail(ring, rows)

    def delete(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        return self.unit.delete_mail(ring, keys)

    def delete_shared(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        return self.unit.delete_shared_mail(ring, keys)

    def arrivals(self, ring: int, mails: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Arrival]:
        return self.unit.arrivals(ring, mails)


class _Origins(Origins):
    unit: PretendUnit

    def groups(self, ring: int) -> list[GroupRow]:
        return self.unit.branches(ring)

    def settings(self, ring: int, origins: Sequence[str]) -> list[SettingsRow]:
        return self.unit.standings(ring, origins)

    def save_groups(self, ring: int, rows: Sequence[tuple[str, int, int, int, str]]) -> None:
        return self.unit.save_branches(ring, rows)


class _Blocks(Blocks):
    unit: PretendUnit

    def claims_on(self, ring: int, origins: Sequence[str]) -> list[ClaimRow]:
        return self.unit.claims_of(ring, origins)


class _Loans(Loans):
    unit: PretendUnit

    def release(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        return self.unit.let_go(ring, keys)


class _Rings(Rings):
    unit: PretendUnit

    def save_state(self, ring: int, state: StateRow, ticket_floor: int, look_floor: int) -> None:
        return self.unit.save_state(ring, state, ticket_floor, look_floor)


class _SetAside(SetAside):
    unit: PretendUnit

    def save(
        self,
        ring: int,
        asides: Mapping[Address, Aside | None],
        now: int,
        block: int | None = None,
        arrivals: Mapping[Address, Arrival] | None = None,
    ) -> None:
        return self.unit.save_asides(ring, asides, now, block, arrivals)


class _Events(Events):
    unit: PretendUnit

    def save(self, ring: int, runs: Iterable[EventRun], now: int, block: int | None = None) -> None:
        return self.unit.save_events(ring, runs, now, block)
