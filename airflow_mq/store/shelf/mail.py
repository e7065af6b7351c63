"""Mail that is in no page yet: it is fetched for many queues at once, and cut when its turn comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...core.blob import Reference
from ...core.book import Book
from ...core.page import Mail, Note
from ..rows import MailRow
from ..thaw import mail_of, split_mail
from .inbox import FIRST_LOOK, Inbox
from .memory import RING_SLICE
from .pages import Pages
from .tickets import POSTED, ticket_of

#: How many rows of mail are fetched at once for queues that are only likely to need them.
MOST_ROWS = 32_768
#: Mail of up to so many bytes is fetched together with its bytes, where these are wanted.
INLINE = 2000


class Inboxes(Pages):
    """The part of a shelf that fetches mail and lets it be cut."""

    def next_mail(self, origin: str) -> Mail | None:
        """The next mail of this origin that is in no page yet."""
        inbox = self.inbox(origin)
        if not inbox.rows and not inbox.empty:
            self._fill_inboxes(origin)
        if self.looking and inbox.empty and not inbox.rows:
            if not inbox.due_seen:
                self._add_due([origin])
            inbox.rows, inbox.due = inbox.due, deque()
        if inbox.rows:
            return mail_of(inbox.take())
        return self._next_posted(origin) if self.posted else None

    def _next_posted(self, origin: str) -> Mail | None:
        known, ids = self.origins[origin], self.posted_to.get(origin, ())
        if known.posted == len(ids):
            return None
        id_ = ids[known.posted]
        known.posted += 1
        self.inboxes[origin].taken.append(id_)
        payload = self.posted[id_][1]
        return Mail(id_, [len(payload)], self._notes_of_posted(id_, payload))

    def _notes_of_posted(self, id_: int, payload: bytes) -> dict[int, Note]:
        if id_ in self.posted_said:
            return {0: self.posted_said[id_].note}
        return {0: Note(blob=payload.size)} if isinstance(payload, Reference) else {}

    def inbox(self, origin: str) -> Inbox:
        """The inbox of an origin."""
        inbox = self.inboxes.get(origin)
        if inbox is None:
            self.book(origin)
            inbox = self.inboxes[origin] = Inbox(self.origins[origin].cut, self.horizon)
        return inbox

    def _fill_inboxes(self, origin: str) -> None:
        """Fetch for this queue, and for those the walk will come to that have nothing left either."""
        look, hungry = self.inboxes[origin].look, [origin]
        for other in self.circle(origin).upcoming(origin, RING_SLICE):
            if look * (len(hungry) + 1) > MOST_ROWS:
                break
            if not self.books[other].passed_by:
                inbox = self.inbox(other)
                if inbox.look <= look and not inbox.empty:
                    hungry.append(other)
        self._fill(hungry, look)
        if not self.inboxes[origin].rows and not self.inboxes[origin].empty:
            self._fill_inboxes(origin)

    def _fill(self, hungry: list[str], look: int) -> None:
        inline = INLINE if self.wants_payloads else 0
        most = look + max(len(self.inboxes[name].read) for name in hungry)
        starts = [(name, self.inboxes[name].start) for name in hungry]
        counts = dict.fromkeys(hungry, 0)
        for row in self.unit.inbox.after(self.ring_id, starts, most, inline):
            counts[row.origin] += 1
            if self.inboxes[row.origin].add(row) and row.heap:
                self.payload_cache[row.origin, row.id] = split_mail(row, row.heap)
                self.fetched += row.size
        for name in hungry:
            self.inboxes[name].end_look(most, counts[name], look)

    def _add_due(self, origins: Sequence[str]) -> None:
        """Mail that is due stands behind all other; whoever writes next lets it join."""
        for origin in origins:
            self.inbox(origin).due_seen = True
        for row in self.unit.inbox.due_of(self.ring_id, origins, self.now):
            assert row.heap is not None
            self.inboxes[row.origin].due.append(row)
            self.payload_cache[row.origin, row.id] = split_mail(row, row.heap)

    def look_at(self, origins: list[str]) -> None:
        """Fetch what looking at all of these will need, in a few statements."""
        self.looking = True
        self.load_books(origins)
        for origin in origins:
            self.inbox(origin)
        if origins:
            self._fill(origins, max(min(MOST_ROWS // len(origins), 4096), FIRST_LOOK))
            self._add_due(origins)

    def cut_everything(self) -> None:
        """Cut all mail of the ring, in the order in which it was sent (for those who listen)."""
        after = -1
        while rows := self.unit.inbox.uncut(self.ring_id, after, 1024):
            self.load_books(row.origin for row in rows)
            for row in rows:
                after = row.id
                if not self.origins[row.origin].cut.has(row.id):
                    self.pull(self.book(row.origin))
            if len(rows) < 1024:
                return

    def pull_some(self, book: Book, wanted: int) -> bool:
        """Cut mail until that many messages more lie in pages, or there is none."""
        enough, pulled, inbox = book.message_count + wanted, False, self.inbox(book.origin)
        while book.message_count < enough:
            singles = [] if self.listening else inbox.take_singles(enough - book.message_count)
            if singles:
                self._cut_singles(book, singles)
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
        self.changed_books.add(book.origin)
        if not was_ready and book.origin not in self.circle(book.origin):
            self.knit(book, Mail(ids[0], sizes[:1]))

    def was_cut(self, book: Book, mail: Mail) -> None:
        """Remember what was added, apart from what servicing took away."""
        known = self.origins[book.origin]
        known.messages += mail.items
        known.size += mail.held(0, mail.items)

    def knit(self, book: Book, mail: Mail) -> None:
        """Enter the ring in the order of arrivals: when this mail arrived, it was knit in."""
        ring, origin = self.circle(book.origin), book.origin
        floor = 0 if ring is self.high else self.state.ticket_floor
        if floor <= mail.id < POSTED and origin not in ring.unknitted:
            self.tickets[origin] = ticket_of(origin, mail.id)
        else:
            ring.knit(origin)
