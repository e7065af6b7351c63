"""A shelf over a database: loads in slices, remembers what changed, writes it back at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from ..core.blob import Reference
from ..core.book import DEFAULT_STANDING, Book, Branch, Standing
from ..core.claims import Claim
from ..core.config import RingConfig
from ..core.errors import StoreCorrupt
from ..core.groups import ROOT, names_above
from ..core.message import Address
from ..core.page import PROCESSED, WAITING, Mail, Note, Page, Slice
from ..core.priority import is_high, origin_of, told
from ..core.shelf import Shelf
from ..core.weight import UNLIMITED, Weight
from . import codec
from .blobs import open_blob
from .rejoining import Rejoining, dated
from .rows import Arrival, BookRow, MailRow, PageRow, StateRow
from .thaw import headers_of, mail_of, page_of, split, split_mail, standing_of
from .unit import Unit

#: How many ready books one look at the ring brings.
RING_SLICE = 128
#: How many pages and mails of a queue the first look at it brings; each further one doubles it.
FIRST_LOOK = 8
#: Above so many ids since the last look, ask which origins have mail instead of reading it all.
LONG_LOOK = 20_000
#: How many rows of mail are fetched at once for queues that are only likely to need them.
MOST_ROWS = 32_768
#: How many bytes of messages are fetched at once for the same reason.
MOST_BYTES = 8 << 20
#: Mail of up to so many bytes is fetched together with its bytes, where these are wanted.
INLINE = 2000
#: Pages that were processed out of turn leave holes in a window; so many of them there cannot be.
MOST_HOLES = 1 << 20
#: Ids from here on stand for mail that is not written yet.
POSTED = 1 << 62
#: The tickets of high books are ids so far down: below all others, in an order of their own.
HIGH_DOWN = 1 << 62
#: No regular book has a smaller ticket, no high one a larger, nor one below the least.
LEAST_TICKET, LEAST_REGULAR = -(1 << 63) + 1, -(1 << 60)


class MailBox:
    """The mail of one origin that is in no page yet, as far as it was fetched."""

    def __init__(self, floor: int, horizon: int) -> None:
        self.after = floor - 1
        #: Mail below this was there for everybody to see before the first look into this box.
        self.horizon = max(horizon, floor)
        #: Mail from the horizon on that was read. Between two looks a sender may commit mail with a
        #: smaller id than these, and then more with a larger one: a look that began behind what was
        #: read would bring the second before the first. So each look begins at the horizon again.
        self.read: set[int] = set()
        self.rows: deque[MailRow] = deque()
        self.look = FIRST_LOOK
        self.empty = False
        self.due: deque[MailRow] = deque()
        self.due_seen = False


class Origin:
    """How a book stood when it was loaded, and what was cut for it since."""

    def __init__(self, row: BookRow) -> None:
        self.row = row
        self.ahead = set(codec.unpack_numbers(row.ahead)[0]) if row.ahead else set()
        self.floor = row.floor
        self.ticket = row.ticket
        self.begin_page = row.begin_page
        self.taken: list[int] = []
        #: How many of those that were posted to it were cut.
        self.posted = 0
        self.messages = 0
        self.size = 0


class SqlShelf(Shelf):
    """The working set of one operation on one ring."""

    def __init__(
        self, unit: Unit, ring_id: int, config: RingConfig, state: StateRow, *,
        now: int, horizon: int, listening: bool = False, passes_in_flight: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(config, now, listening=listening)
        self.unit = unit
        self.ring_id = ring_id
        self.state = state
        #: Mail with a smaller id is known to everybody: none will appear any more.
        self.horizon = horizon
        #: Whether an origin of which anything is in flight is passed by, though it is not ordered.
        self.passes_in_flight = passes_in_flight
        self.ticket_cursor = max(state.ticket_floor, LEAST_REGULAR) - 1
        self.high_cursor = LEAST_TICKET
        self.high_done = not config.high
        self.look_cursor = state.look_floor
        self.look_floor = state.look_floor
        self.rest_done = False
        self.tickets: dict[str, int] = {}
        self.origins: dict[str, Origin] = {}
        self.boxes: dict[str, MailBox] = {}
        self.page_base: dict[tuple[str, int], tuple[int, bytes, int, int, int]] = {}
        self.page_look: dict[str, int] = {}
        self.posted: dict[int, tuple[str, bytes]] = {}
        self.posted_to: dict[str, list[int]] = {}
        self.next_posted = POSTED
        #: Which of these were there before, and what is known of them.
        self.rejoining: dict[int, Rejoining] = {}
        self.arrived: dict[Address, Arrival] = {}
        self.payload_cache: dict[tuple[str, int], list[bytes]] = {}
        self.header_cache: dict[tuple[str, int], tuple[int, Mapping[int, Mapping[str, str]]]] = {}
        #: Bytes of messages that were fetched since the last save.
        self.fetched = 0
        #: Whether pages are fetched with their messages.
        self.wants_payloads = False
        #: Whether somebody else holds the ring: then its books are theirs, but for those in flight.
        self.beside = False
        #: Whether this only looks: then mail that is due counts, though it has not joined yet.
        self.looking = False
        #: What is left to do in the same transaction once everything is written.
        self.after_save: list[Callable[[], object]] = []
        #: Of a ring with paths: ready books by their tickets, how groups stood when they were loaded, what is
        #: set under names, and which groups are paused.
        self.whole_line: list[tuple[int, str]] | None = None
        self.known_branches: dict[str, int] | None = None
        self.standings: dict[str, Standing] = {}
        self._paused_groups: frozenset[str] | None = None
        #: The block on whose behalf this happens.
        self.block: int | None = None
        #: Whether mail went that referred to payloads kept apart: some of these may be nobody's now.
        self.let_go_blobs = False

    # The ring, slice by slice.

    def more_ready(self) -> list[str]:
        """The next stretch: books by their tickets, and origins with news by their first mail."""
        found: list[tuple[int, str]] = []
        while not found and not self.rest_done:
            rows = self.unit.ready_books(self.ring_id, self.ticket_cursor, RING_SLICE, self.now)
            self._load_standings(row.origin for row in rows)
            self.rest_done = len(rows) < RING_SLICE
            found = [(row.ticket or 0, self._load(row)) for row in rows]
            if rows:
                self.ticket_cursor = rows[-1].ticket or 0
            found += self._news(None if self.rest_done else self.ticket_cursor)
        if not found:
            found = self._news(None)
        return [origin for _, origin in sorted(found)]

    def more_high(self) -> list[str]:
        """The same of high books; all of their news at once: they come first, however late they were sent."""
        if self.high_done:
            return []
        rows = self.unit.ready_books(self.ring_id, self.high_cursor, RING_SLICE, self.now)
        high = [row for row in rows if is_high(row.origin)]
        found = [(row.ticket or 0, self._load(row)) for row in high]
        if len(high) == RING_SLICE:
            self.high_cursor = high[-1].ticket or 0
        else:
            self.high_done = True
            found += self._unready(self.unit.high_news(self.ring_id))
        return [origin for _, origin in sorted(found)]

    def _news(self, below: int | None) -> list[tuple[int, str]]:
        """Origins that were not ready and have mail, each at the place of its first one."""
        if below is not None and below <= self.look_cursor:
            return []
        last = self.unit.last_id
        if below is None and last - self.look_cursor > LONG_LOOK:
            rows = self.unit.news_by_origin(self.ring_id)
        else:
            rows = self.unit.news_by_id(self.ring_id, self.look_cursor, below if below is not None else POSTED)
        self.look_cursor = below if below is not None else last + 1
        self.look_floor = min(self.look_cursor, self.horizon)
        return self._unready(row for row in rows if not is_high(row[0]))

    def _unready(self, rows: Iterable[tuple[str, int]]) -> list[tuple[int, str]]:
        """Origins that are not ready and have mail: each enters its ring."""
        found = []
        fresh = [(id_, origin) for origin, id_ in rows if origin not in self.circle(origin)]
        self.load_books(origin for _, origin in fresh)
        for id_, origin in fresh:
            book, ring = self.book(origin), self.circle(origin)
            if origin not in ring.unknitted and (book.is_ready or self.pull(book)) and origin not in ring:
                found.append((self.tickets.get(origin, ticket_of(origin, id_)), origin))
        return found

    # Books.

    def fetch_book(self, origin: str) -> Book:
        """One book."""
        self.load_books([origin])
        return self.books[origin]

    def load_books(self, origins: Iterable[str]) -> None:
        """Many books at once."""
        wanted = [origin for origin in dict.fromkeys(origins) if origin not in self.books]
        if not wanted:
            return
        self._load_standings(wanted)
        for row in self.unit.books(self.ring_id, wanted, self.now):
            self._load(row)
        for origin in wanted:
            if origin not in self.books:
                self._load(BookRow(origin, 0, 0, 0, 0, 0, None, 0, 0, b"", 0, False, False, None))

    def _load(self, row: BookRow) -> str:
        origin = row.origin
        if origin in self.books:
            return origin
        if row.end_page - row.begin_page > row.pages + MOST_HOLES:
            raise StoreCorrupt(
                f"the window of {told(origin)} goes from page {row.begin_page} to {row.end_page}, "
                f"but it has {row.pages} pages"
            )
        standing = standing_of(row.standing)
        book = Book(origin, row.begin_page, row.end_page, row.pages, row.messages, row.size, row.deficit, "", standing)
        ordered = standing.ordered if standing.ordered is not None else self.config.ordered
        if self.config.paths:
            book.standing = self._within_groups(origin, standing)
        if row.paused or self.is_paused_below(origin):
            book.passed_by = "paused"
        elif row.in_flight and (ordered or self.passes_in_flight):
            book.passed_by = "in flight"
        elif row.wake_at > self.now:
            book.passed_by = "backoff"
        self.books[origin] = book
        self.origins[origin] = Origin(row)
        return origin

    # Groups, of a ring with paths.

    def line(self) -> list[tuple[str, int]]:
        """All ready origins in the ring's order, with their deficits, but for those in paused groups."""
        self.load_branches()
        rows = [row for row in self.unit.line(self.ring_id) if not is_high(row[1])]
        self.whole_line = [(ticket, origin) for ticket, origin, _ in rows]
        fresh = self._news(None)
        for _, origin in fresh:
            self.ring.meet(origin)
        rows += [(ticket, origin, self.books[origin].deficit) for ticket, origin in fresh]
        return [(origin, deficit) for _, origin, deficit in sorted(rows) if not self.is_paused_below(origin)]

    def load_branches(self) -> None:
        """Read all groups, once."""
        if self.known_branches is not None:
            return
        self.known_branches = {}
        for path, deficit, level, owed in self.unit.branches(self.ring_id):
            self.branches[path] = Branch(path, deficit, level)
            self.known_branches[path] = deficit
            if path == ROOT:
                with codec.reading("who comes first in the next block"):
                    self.owed = codec.read_json(owed)["first"]

    def standing(self, origin: str) -> Standing:
        """What is set under this name, for a queue or for a group."""
        if origin not in self.standings:
            self._fetch_standings([origin])
        return self.standings[origin]

    def _load_standings(self, origins: Iterable[str]) -> None:
        """What is set for these queues and for the groups that hold them."""
        if self.config.paths:
            names = {name for origin in map(origin_of, origins) for name in (origin, *names_above(origin))}
            self._fetch_standings(sorted(names - self.standings.keys()))

    def _fetch_standings(self, names: list[str]) -> None:
        if names:
            self.standings |= dict.fromkeys(names, DEFAULT_STANDING)
            self.standings |= {name: standing_of(said) for name, said in self.unit.standings(self.ring_id, names)}

    def _within_groups(self, origin: str, standing: Standing) -> Standing:
        """No queue gets more than a group that holds it."""
        mosts = [most for name in names_above(origin_of(origin)) if (most := self.standing(name).most) is not None]
        if not mosts:
            return standing
        return replace(standing, most=Weight(*map(min, *mosts, standing.most or UNLIMITED)))

    def is_paused_below(self, origin: str) -> bool:
        """Whether this origin is paused together with a group that holds it, or all below it."""
        if not self.config.paths:
            return False
        if self._paused_groups is None:
            rows = self.unit.rows("paused_groups", ring=self.ring_id, now=self.now)
            self._paused_groups = frozenset(row[0] for row in rows)
        whose = origin_of(origin)
        return bool(self._paused_groups) and not self._paused_groups.isdisjoint((whose, *names_above(whose)))

    def _save_branches(self) -> None:
        if not self.changed_branches:
            return
        self.load_branches()
        assert self.known_branches is not None
        rows = []
        for path in sorted(self.changed_branches):
            branch = self.branches[path]
            owed = codec.write_json({"first": self.owed}).decode() if path == ROOT else ""
            delta = branch.deficit - self.known_branches.get(path, branch.deficit)
            rows.append((path, branch.deficit, delta, branch.level, owed))
            self.known_branches[path] = branch.deficit
        self.unit.save_branches(self.ring_id, rows)
        self.changed_branches = set()

    # Pages.

    def fetch_page(self, origin: str, index: int) -> Page | None:
        """A page, and with it the next ones of the queues that the walk will come to."""
        book = self.book(origin)
        if not book.begin <= index < book.end:
            self._keep_pages(self.unit.pages(self.ring_id, [(origin, index, index)], 1))
            return self.pages.get((origin, index))
        look = self.page_look[origin] = min(self.page_look.get(origin, 1) * 2, 256)
        wanted = [(origin, index, min(index + look // 2, book.end) - 1)]
        for other in self.circle(origin).upcoming(origin, RING_SLICE):
            its = self.books[other]
            ahead = range(its.begin, min(its.begin + 2, its.end)) if not its.passed_by else ()
            missing = [at for at in ahead if (other, at) not in self.pages]
            if missing:
                wanted.append((other, missing[0], missing[-1]))
        self._keep_pages(self.unit.pages(self.ring_id, wanted, look))
        for at in range(index, wanted[0][2] + 1):
            self.pages.setdefault((origin, at), None)
        return self.pages[origin, index]

    def _keep_pages(self, rows: list[PageRow]) -> None:
        fresh = []
        for row in rows:
            key = (row.origin, row.page)
            if key not in self.pages and key not in self.removed_pages:
                self.pages[key] = page = page_of(row)
                self.page_base[key] = (
                    page.first_index, bytes(page.marks), page.remaining, page.remaining_size, len(page.lengths)
                )  # fmt: skip
                fresh.append((row.origin, page))
        relaxed = [origin for origin, _ in fresh if self.origins[origin].row.in_flight] if fresh else []
        if relaxed and self.planning:
            self._hide_claimed(sorted(set(relaxed)))

    def _hide_claimed(self, origins: list[str]) -> None:
        """What other blocks hold of a relaxed queue looks processed to a plan."""
        for origin, data in self.unit.claims_of(self.ring_id, origins):
            for run in codec.unpack_claim(origin, data).runs:
                page = self.pages.get((origin, run.page))
                if page is not None:
                    for item in range(run.first, min(run.first + run.count, len(page.marks))):
                        if page.marks[item] == WAITING:
                            page.mark_processed(item)

    def fetch_pages(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Single pages, many at once."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self.pages]
        self.load_books(origin for origin, _ in missing)
        if missing:
            self._keep_pages(self.unit.pages(self.ring_id, [(origin, at, at) for origin, at in missing], 1))

    def keep(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, Page]]:
        """Take pages that somebody fetched."""
        found = [PageRow(*row) for row in rows]
        self.load_books(row.origin for row in found)
        self._keep_pages(found)
        for row in found:
            page = self.pages.get((row.origin, row.page))
            if page is not None:
                yield row.origin, page

    def keep_all(self, origin: str) -> None:
        """Fetch all stored pages of an origin, however old."""
        self._keep_pages(self.unit.pages(self.ring_id, [(origin, 0, POSTED)], POSTED))

    def pages_of(self, origin: str) -> Iterator[tuple[int, Page]]:
        """All stored pages of an origin, however old."""
        for row in self.unit.pages(self.ring_id, [(origin, 0, 1 << 62)], 1 << 30):
            yield row.page, page_of(row)

    def expect(self, claims: Iterable[Claim]) -> None:
        """Fetch what settling these claims will need, messages included: their ids are told."""
        keys = [(claim.origin, run.page) for claim in claims for run in claim.runs]
        self.fetch_pages(keys)
        self.fetch_payloads((origin, page) for (origin, _), page in zip(keys, map(self.pages.get, keys)) if page)

    # Mail.

    def next_mail(self, origin: str) -> Mail | None:
        """The next mail of this origin that is in no page yet."""
        box = self._box(origin)
        if not box.rows and not box.empty:
            self._fill_boxes(origin)
        if self.looking and box.empty and not box.rows:
            if not box.due_seen:
                self._add_due([origin])
            box.rows, box.due = box.due, deque()
        if box.rows:
            row = box.rows.popleft()
            known = self.origins[origin]
            known.taken.append(row.id)
            return mail_of(row)
        return self._next_posted(origin) if self.posted else None

    def _next_posted(self, origin: str) -> Mail | None:
        known, ids = self.origins[origin], self.posted_to.get(origin, ())
        if known.posted == len(ids):
            return None
        id_ = ids[known.posted]
        known.posted += 1
        known.taken.append(id_)
        payload = self.posted[id_][1]
        return Mail(id_, [len(payload)], self._notes_of_posted(id_, payload))

    def _box(self, origin: str) -> MailBox:
        box = self.boxes.get(origin)
        if box is None:
            self.book(origin)
            box = self.boxes[origin] = MailBox(self.origins[origin].floor, self.horizon)
        return box

    def _fill_boxes(self, origin: str) -> None:
        """Fetch for this queue, and for those the walk will come to that have nothing left either."""
        look, hungry = self.boxes[origin].look, [origin]
        for other in self.circle(origin).upcoming(origin, RING_SLICE):
            if look * (len(hungry) + 1) > MOST_ROWS:
                break
            if not self.books[other].passed_by:
                box = self._box(other)
                if box.look <= look and not box.empty:
                    hungry.append(other)
        self._fill(hungry, look)
        if not self.boxes[origin].rows and not self.boxes[origin].empty:
            self._fill_boxes(origin)

    def _fill(self, hungry: list[str], look: int) -> None:
        inline = INLINE if self.wants_payloads else 0
        most = look + max(len(self.boxes[one].read) for one in hungry)
        starts = [(one, min(self.boxes[one].after, self.boxes[one].horizon - 1)) for one in hungry]
        counts = dict.fromkeys(hungry, 0)
        for row in self.unit.mail(self.ring_id, starts, most, inline):
            box = self.boxes[row.origin]
            counts[row.origin] += 1
            if row.id in box.read:
                continue
            box.after = max(box.after, row.id)
            if row.id >= box.horizon:
                box.read.add(row.id)
            if row.id not in self.origins[row.origin].ahead:
                box.rows.append(row)
                if row.heap:
                    self.payload_cache[row.origin, row.id] = split_mail(row, row.heap)
                    self.fetched += row.size
        for one in hungry:
            box = self.boxes[one]
            # What is read again is no more than half of what is new.
            box.look = max(min(look * 2, 4096), 2 * len(box.read))
            box.empty = counts[one] < most

    def look_at(self, origins: list[str]) -> None:
        """Fetch what looking at all of these will need, in a few statements."""
        self.looking = True
        self.load_books(origins)
        for origin in origins:
            self._box(origin)
        if origins:
            self._fill(origins, max(min(MOST_ROWS // len(origins), 4096), FIRST_LOOK))
            self._add_due(origins)

    def pull_some(self, book: Book, wanted: int) -> bool:
        """Cut mail until that many messages more lie in pages, or there is none."""
        enough, pulled, box = book.message_count + wanted, False, self._box(book.origin)
        while book.message_count < enough:
            single = [] if self.listening else _leading_singles(box, enough - book.message_count)
            if len(single) > 1:
                self._cut_singles(book, single)
            elif not self.pull(book):
                break
            pulled = True
        return pulled

    def _cut_singles(self, book: Book, rows: list[MailRow]) -> None:
        """Cut a row of mails of one plain message each: the same as one by one, with less ado."""
        known, was_ready = self.origins[book.origin], book.is_ready
        page = self.page(book.origin, book.end - 1) if was_ready else None
        ids, sizes = [row.id for row in rows], [row.size for row in rows]
        at = 0
        while at < len(rows):
            count = page.append_singles(ids[at:], sizes[at:], self.config.heap_size) if page else 0
            if page is None or not count:
                page = self._open_page(book)
                continue
            self.changed_pages.add((book.origin, page.index))
            at += count
        size = sum(sizes)
        book.message_count += len(rows)
        book.size += size
        known.messages += len(rows)
        known.size += size
        known.taken += ids
        self.changed_books.add(book.origin)
        if not was_ready and book.origin not in self.circle(book.origin):
            self.knit(book, Mail(ids[0], sizes[:1]))

    def _add_due(self, origins: Sequence[str]) -> None:
        """Mail that is due stands behind all other; whoever writes next lets it join."""
        for origin in origins:
            self._box(origin).due_seen = True
        for *row, heap in self.unit.rows_for("due_mail", {"origin": origins}, ring=self.ring_id, now=self.now):
            mail = MailRow(*row)
            self.boxes[mail.origin].due.append(mail)
            self.payload_cache[mail.origin, mail.id] = split_mail(mail, heap)

    def was_cut(self, book: Book, mail: Mail) -> None:
        """Remember what was added, apart from what servicing took away."""
        known = self.origins[book.origin]
        known.messages += mail.items
        known.size += mail.size(0, mail.items)

    def knit(self, book: Book, mail: Mail) -> None:
        """Enter the ring in the order of arrivals: when this mail arrived, it was knit in."""
        ring, origin = self.circle(book.origin), book.origin
        floor = 0 if ring is self.high else self.state.ticket_floor
        if floor <= mail.id < POSTED and origin not in ring.unknitted:
            self.tickets[origin] = ticket_of(origin, mail.id)
        else:
            ring.knit(origin)

    def cut_everything(self) -> None:
        """Cut all mail of the ring, in the order in which it was sent (for those who listen)."""
        after = -1
        while rows := self.unit.uncut(self.ring_id, after, 1024):
            self.load_books(row.origin for row in rows)
            for row in rows:
                after = row.id
                known = self.origins[row.origin]
                if row.id >= known.row.floor and row.id not in known.ahead:
                    self.pull(self.book(row.origin))
            if len(rows) < 1024:
                return

    def post(self, origin: str, payload: bytes) -> None:
        """Enqueue on behalf of a processor: behind all that was sent before, in the same commit."""
        self.posted[self.next_posted] = (origin, payload)
        self.posted_to.setdefault(origin, []).append(self.next_posted)
        self.next_posted += 1
        if self.beside:
            return
        book = self.book(origin)
        if self.listening:
            while self.pull(book):
                pass
        elif not book.is_ready:
            self.pull(book)

    def _notes_of_posted(self, id_: int, payload: bytes) -> dict[int, Note]:
        if id_ in self.rejoining:
            return {0: self.rejoining[id_].note}
        return {0: Note(blob=payload.size)} if isinstance(payload, Reference) else {}

    def rejoin(self, book: Book, page: Page, item: int, weight: Weight | None) -> Address:
        """Enqueue a stored message once more; all mail is cut, so that its address is known."""
        origin = book.origin
        arrival = self.arrivals([Address(origin, page.index, item)])[Address(origin, page.index, item)]
        note = page.note(item)._replace(weight=weight, arrived=arrival.block)
        headers = self.headers(origin, page).get(item, {})
        self.rejoining[self.next_posted] = Rejoining(note, headers, arrival.at)
        self.post(origin, self.payloads(origin, page)[item])
        while self.pull(book):
            pass
        last = self.page(origin, book.end - 1)
        assert last is not None
        return Address(origin, last.index, len(last.lengths) - 1)

    def arrivals(self, addresses: Iterable[Address]) -> dict[Address, Arrival]:
        """When messages that lie in pages here were sent, and the first block since."""
        wanted = list(addresses)
        items: dict[tuple[str, int], list[Address]] = {}
        for at in wanted:
            if at not in self.arrived and self.pages.get((at.book, at.page)) is not None:
                items.setdefault((at.book, at.page), []).append(at)
        mails: dict[Address, tuple[str, int]] = {}
        for key, its in items.items():
            page = self.pages[key]
            found = page.mails_of(at.index for at in its) if page is not None else ()
            mails.update(zip(its, ((key[0], mail) for mail in found)))
        told = self.unit.arrivals(self.ring_id, sorted(set(mails.values())))
        for at, mail in mails.items():
            page, arrival = self.pages[at.book, at.page], told.get(mail)
            if arrival is not None and page is not None:
                self.arrived[at] = arrival._replace(block=page.note(at.index).arrived or arrival.block)
        return {at: self.arrived[at] for at in wanted if at in self.arrived}

    def headers(self, origin: str, page: Page) -> Mapping[int, Mapping[str, str]]:
        """What senders said beside the messages of a page, by index; mostly nothing."""
        known = self.header_cache.get((origin, page.index))
        if known is not None and known[0] == len(page.slices):
            return known[1]
        mails = sorted({part.mail for part in page.slices})
        columns: dict[str, list[Any]] = {"origin": [origin] * len(mails), "id": mails}
        said = {
            id_: codec.read_json(bytes(attributes))
            for _, id_, attributes in self.unit.rows_for("mail_attributes", columns, ring=self.ring_id)
        }
        with codec.reading("what senders said beside their messages"):
            found = headers_of(page, said)
        self.header_cache[origin, page.index] = len(page.slices), found
        return found

    # Payloads.

    def payloads(self, origin: str, page: Page) -> list[bytes]:
        """The messages of a page."""
        if page.resolved < len(page.slices):
            if not all(part.mail >= POSTED or (origin, part.mail) in self.payload_cache for part in _unresolved(page)):
                self._fetch_ahead(origin, page)
            self.fetch_payloads([(origin, page)])
        return page.payloads

    def payload(self, origin: str, page: Page, item: int) -> bytes:
        """One message of a page, without fetching the others."""
        mail, place = page.mail_of(item), page.place_of(item)
        self._cache_heaps({(origin, mail)} - self.payload_cache.keys())
        data = self._stretch(origin, mail, place, 1)[0]
        return Reference.read(data) if page.note(item).blob else data

    def _fetch_ahead(self, origin: str, page: Page) -> None:
        """Fetch the bytes of a page, and with them those that the walk will come to."""
        wanted = {(origin, part.mail) for part in _unresolved(page) if part.mail < POSTED}
        size = page.used
        for other in [origin, *self.circle(origin).upcoming(origin, RING_SLICE)] if self.wants_payloads else ():
            book = self.books[other]
            its = self.pages.get((other, book.begin)) if book.is_ready else None
            if its is not None and its.resolved < len(its.slices):
                wanted.update((other, part.mail) for part in _unresolved(its) if part.mail < POSTED)
                size += its.used
            box = self.boxes.get(other)
            own = 0
            for row in box.rows if box else ():
                own += row.size
                if own > self.config.heap_size:
                    break
                wanted.add((other, row.id))
            size += own
            if size > MOST_BYTES:
                break
        self._cache_heaps(wanted - self.payload_cache.keys())

    def _cache_heaps(self, wanted: Iterable[tuple[str, int]]) -> None:
        borrowed = []
        for origin, id_, lengths, items, size, heap in self.unit.heaps(self.ring_id, sorted(wanted)):
            if heap:
                self.payload_cache[origin, id_] = split(heap, codec.unpack_lengths(lengths, items, size))
            else:
                borrowed.append((origin, id_))
            self.fetched += size
        for origin, id_, heap in self.unit.borrowed_heaps(self.ring_id, borrowed) if borrowed else ():
            self.payload_cache[origin, id_] = [bytes(heap)]

    def fetch_payloads(self, pages: Iterable[tuple[str, Page]]) -> None:
        """The messages of many pages at once."""
        pages = list(pages)
        wanted = {
            (origin, part.mail)
            for origin, page in pages
            for part in _unresolved(page)
            if part.mail < POSTED and (origin, part.mail) not in self.payload_cache
        }
        self._cache_heaps(wanted)
        for origin, page in pages:
            first = len(page.payloads)
            for part in _unresolved(page):
                page.payloads += self._stretch(origin, part.mail, part.start, part.items)
            page.resolved = len(page.slices)
            for item, note in page.notes.items():
                if note.blob and first <= item < len(page.payloads):
                    with codec.reading("a reference to a payload that is kept apart"):
                        page.payloads[item] = Reference.read(page.payloads[item])

    def _stretch(self, origin: str, mail: int, start: int, count: int) -> list[bytes]:
        if mail >= POSTED:
            return [self.posted[mail][1]]
        whole = self.payload_cache.get((origin, mail))
        if whole is None:
            raise StoreCorrupt(f"mail {mail} of {told(origin)} is gone, though a page refers to it")
        return whole[start : start + count]

    def open_blob(self, reference: Reference) -> IO[bytes]:
        """A payload kept apart, as a file to read from."""
        return open_blob(self.unit.store, reference)

    def refresh(self, state: StateRow, keep: str | None) -> None:
        """Somebody else ended a block meanwhile: look again at what was in flight, and was passed by.

        Everything else is this shelf's alone, and what it changed of it is still to be written.
        """
        self.state = state
        others = [o for o, known in self.origins.items() if known.row.in_flight and o != keep and o in self.books]
        self.pages = {key: page for key, page in self.pages.items() if key[0] not in others}
        books = {origin: self.books.pop(origin) for origin in others}
        for origin in others:
            self.boxes.pop(origin, None)
        self.load_books(others)
        for origin, book in books.items():
            fresh = self.books[origin]
            book.__dict__.update({**fresh.__dict__, "deficit": book.deficit})
            self.books[origin] = book

    # Writing back.

    def forget_plan(self) -> None:
        """Put books and pages back to where they were, but for what was cut and what was earned."""
        for origin, book in self.books.items():
            known = self.origins[origin]
            book.begin = known.row.begin_page
            book.count = known.row.pages + book.end - known.row.end_page
            book.message_count = known.row.messages + known.messages
            book.size = known.row.size + known.size
        self.pages.update(self.removed_pages)
        touched = self.changed_pages | set(self.removed_pages)
        cut = {key for key in touched if self._was_extended(key)}
        for key, page in self.pages.items():
            if page is not None:
                self._restore(key, page)
        self.changed_pages, self.removed_pages = cut, {}
        self.asides, self.events, self.waits = {}, [], {}
        self.changed_books = {
            origin
            for origin, known in self.origins.items()
            if known.messages or self.books[origin].deficit != known.row.deficit
        }
        self.ring.unknitted.clear()
        self.high.unknitted.clear()

    def _was_extended(self, key: tuple[str, int]) -> bool:
        page = self.pages.get(key)
        return page is not None and len(page.lengths) > self.page_base.get(key, (0, b"", 0, 0, 0))[4]

    def _restore(self, key: tuple[str, int], page: Page) -> None:
        first, marks, remaining, remaining_size, items = self.page_base.get(key, (0, b"", 0, 0, 0))
        page.first_index = first
        page.marks = bytearray(marks) + bytes(len(page.lengths) - items)
        page.remaining = remaining + len(page.lengths) - items
        page.remaining_size = remaining_size + sum(page.lengths[items:])

    def save(self) -> None:
        """Write everything that changed."""
        self._save_posted()
        self._save_pages()
        self._save_books()
        self._save_branches()
        unit, ring = self.unit, self.ring_id
        arrivals = self.arrivals(at for at, aside in self.asides.items() if aside is not None)
        unit.save_asides(ring, self.asides, self.now, self.block, arrivals)
        if arrivals:
            self.events = list(dated(self.events, arrivals))
        unit.save_events(ring, self.events, self.now, self.block)
        unit.save_state(ring, self.state, self.ticket_floor(), self.look_floor)
        for step in self.after_save:
            step()
        self._begin_again()

    def _begin_again(self) -> None:
        """What is written is no change any more; whoever goes on with this shelf looks anew."""
        for (origin, _), page in self.removed_pages.items():
            for part in page.slices:
                self.payload_cache.pop((origin, part.mail), None)
        self.forget_changes()
        self.fetched = 0
        self.tickets = {}
        self.header_cache = {}
        for ring in (self.ring, self.high):
            ring.moved.clear()
            ring.favoured = []
        for known in self.origins.values():
            known.taken, known.posted = [], 0
        self.boxes = {origin: box for origin, box in self.boxes.items() if box.rows}

    def _save_posted(self) -> None:
        if not self.posted:
            return
        if not self.config.high and any(is_high(origin) for origin, _ in self.posted.values()):
            self.unit.run("allow_high", ring=self.ring_id)
        ids = dict(zip(self.posted, self.unit.fresh_ids(len(self.posted))))
        self.unit.insert_mail(
            self.ring_id,
            [(ids[old], *sent) for old, sent in self.posted.items() if old not in self.rejoining],
        )
        self.unit.insert_rejoined(
            self.ring_id, [self.rejoining[old].row(ids[old], *self.posted[old]) for old in self.rejoining]
        )
        for key in self.changed_pages:
            page = self.pages.get(key)
            if page is not None:
                page.slices = [part._replace(mail=ids.get(part.mail, part.mail)) for part in page.slices]
        for known in self.origins.values():
            known.taken = [ids.get(id_, id_) for id_ in known.taken]
        for gone in self.removed_pages.values():
            gone.slices = [part._replace(mail=ids.get(part.mail, part.mail)) for part in gone.slices]
        for old, (origin, payload) in self.posted.items():
            self.payload_cache[origin, ids[old]] = [payload]
        self.posted, self.posted_to, self.rejoining = {}, {}, {}

    def _save_pages(self) -> None:
        let_go = self._let_go()
        gone: list[tuple[str, int]] = []
        shared: list[tuple[str, int, int]] = []
        loans: list[tuple[str, int, int]] = []
        for (origin, index), page in self.removed_pages.items():
            if page.has_loans:
                loans.extend((origin, part.mail, index) for part in page.slices)
                continue
            inner = page.slices[1:-1]
            gone.extend((origin, part.mail) for part in inner)
            shared.extend((origin, part.mail, index) for part in {page.slices[0], page.slices[-1]})
        changed = [(origin, self.pages.get((origin, index))) for origin, index in sorted(self.changed_pages)]
        self.unit.save_pages(
            self.ring_id,
            [(origin, page, page.kept(self.books[origin].begin)) for origin, page in changed if page is not None],
        )
        self.unit.delete_pages(self.ring_id, list(self.removed_pages))
        self.unit.delete_mail(self.ring_id, gone)
        self.unit.delete_shared_mail(self.ring_id, sorted(set(shared)))
        self.unit.release_blobs(sorted(let_go))
        self.unit.let_go(self.ring_id, sorted(set(loans)))

    def _let_go(self) -> list[tuple[int, int]]:
        """Where messages lay that are gone now, and referred to payloads kept apart."""
        found: list[tuple[int, int]] = []
        for gone in self.removed_pages.values():
            found += _forget_blobs(gone, range(len(gone.marks)))
        for page in filter(None, map(self.pages.get, self.changed_pages)):
            if page.notes:
                found += _forget_blobs(page, [item for item in page.notes if page.marks[item] == PROCESSED])
        self.let_go_blobs = self.let_go_blobs or bool(found)
        return found

    def _save_books(self) -> None:
        moved = [origin for ring in (self.high, self.ring) for origin in ring.moved if self.books[origin].is_ready]
        tickets = dict(self.tickets)
        fresh = self.unit.fresh_ids(len(moved)) if moved else ()
        tickets.update((origin, ticket_of(origin, id_)) for origin, id_ in zip(moved, fresh))
        for ring, floor in ((self.ring, self.state.ticket_floor), (self.high, self._high_floor(tickets))):
            for place, origin in enumerate(reversed(ring.favoured), start=1):
                tickets[origin] = floor - place
        changed = self.changed_books | set(tickets) | set(self.waits)
        rows = []
        for origin in sorted(changed):
            book, known = self.books[origin], self.origins[origin]
            known.ticket = tickets.get(origin, known.ticket) if book.is_ready else None
            self._move_floor(origin, known)
            wake_at = self.waits.get(origin, known.row.wake_at)
            ahead = codec.pack_numbers(sorted(known.ahead)) if known.ahead else b""
            rows.append(
                (origin, book.begin, book.end, book.count, book.message_count, book.size, known.ticket,
                 book.deficit, known.floor, ahead, wake_at)
            )  # fmt: skip
        self.unit.save_books(self.ring_id, rows)

    def _high_floor(self, fresh: Mapping[str, int]) -> int:
        """No high book has a smaller ticket: the walk begins with the one that has the smallest."""
        if not self.high.favoured:
            return 0
        stored = {origin: known.ticket for origin, known in self.origins.items() if known.ticket is not None}
        return min(ticket for origin, ticket in {**stored, **fresh}.items() if is_high(origin))

    def _move_floor(self, origin: str, known: Origin) -> None:
        """Mail below the floor is in pages; what is in pages at or above it is named."""
        box = self.boxes.get(origin)
        taken = [id_ for id_ in known.taken if id_ < POSTED]
        if not taken and not (box and box.empty):
            return
        known.ahead.update(taken)
        reached = box.horizon if box else known.floor
        if box and (box.rows or not box.empty):
            reached = min(box.rows[0].id if box.rows else box.after + 1, reached)
        known.floor = max(known.floor, reached)
        known.ahead = {id_ for id_ in known.ahead if id_ >= known.floor}

    def ticket_floor(self) -> int:
        """No ready regular book has a smaller ticket than this."""
        tickets = [
            known.ticket for origin, known in self.origins.items() if known.ticket is not None and not is_high(origin)
        ]
        if self.whole_line is not None:
            unseen = (ticket for ticket, origin in self.whole_line if origin not in self.origins)
            tickets += [ticket for ticket in (next(unseen, None),) if ticket is not None]
        elif not self.rest_done:
            tickets.append(self.ticket_cursor + 1)
        return min(tickets, default=self.state.ticket_floor)

    def claims(self, claims: Iterable[Claim]) -> list[tuple[int, str, bytes, bool]]:
        """Claims as rows, in the order of the visits, and whether each holds any message."""
        return [
            (seq, claim.origin, codec.pack_claim(claim), any(run.count for run in claim.runs))
            for seq, claim in enumerate(claims)
        ]


def _forget_blobs(page: Page, items: Collection[int]) -> list[tuple[int, int]]:
    """Forget which of these items referred to payloads kept apart; tell their mails, and their places there."""
    blobs = {item for item, note in page.notes.items() if note.blob and item in items}
    if not blobs:
        return []
    page.notes.update({item: page.notes[item]._replace(blob=None) for item in blobs})
    found = ((part.mail, part.start + at) for part in page.slices for at in range(part.items))
    return [place for item, place in enumerate(found) if item in blobs]


def ticket_of(origin: str, id_: int) -> int:
    """The place in its ring of a book that gets it by this id."""
    return id_ - HIGH_DOWN if is_high(origin) else id_


def level_of(origin: str) -> tuple[int, int]:
    """Between which tickets the books of this one's priority stand."""
    return (LEAST_TICKET, LEAST_REGULAR - 1) if is_high(origin) else (LEAST_REGULAR, -LEAST_TICKET)


def _leading_singles(box: MailBox, most: int) -> list[MailRow]:
    """Take the mails of one plain message from the front of a box."""
    found: list[MailRow] = []
    while box.rows and len(found) < most and box.rows[0].items == 1 and not box.rows[0].attributes:
        found.append(box.rows.popleft())
    if len(found) == 1:
        box.rows.appendleft(found.pop())
    return found


def _unresolved(page: Page) -> list[Slice]:
    """The stretches of a page whose messages were not fetched yet."""
    return page.slices[page.resolved :]
