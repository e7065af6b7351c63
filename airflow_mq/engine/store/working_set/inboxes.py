"""Loader of inbox rows: it fetches them for many queues at once, and hands them out one by one to be cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from ...rules.message import Posted
from ...rules.page import Rows
from ...rules.working_set import WorkingSet
from ..attributes import StoredAttributes
from ..rows import PlainRow, rows_of, split_heap
from .books import BookLoader
from .inbox import FIRST_LOOK, LONGEST_LOOK, Inbox
from .read_ahead import MOST_ROWS, ReadAhead
from .source import LoadOptions, Source

#: Rows of up to so many bytes are fetched together with their payloads, where these are wanted.
INLINE = 2000
#: Number of rows that one look at all inboxes of a ring brings.
ROWS_AT_ONCE = 1024


class PayloadCache:
    """Rows that were fetched with their payloads, by id."""

    def __init__(self) -> None:
        #: The messages of each row; of a row of one message that message.
        self.payloads: dict[int, bytes | list[bytes]] = {}
        #: Times of sending, and attributes that are not empty, of the rows whose facts were read.
        self.sent_at: dict[int, int | None] = {}
        self.attributes: dict[int, StoredAttributes] = {}
        #: Bytes that were fetched since the last save, and before it since all rows were forgotten.
        self.fetched, self._fetched_before = 0, 0

    @property
    def kept(self) -> int:
        """Bytes of payloads that may be in memory: all that were fetched since the rows were last forgotten."""
        return self._fetched_before + self.fetched

    def keep(self, rows: Iterable[PlainRow]) -> None:
        """Keep times and attributes of rows, and their messages where they came with their bytes.

        The bytes of a row of one message are that message.
        """
        for _, id_, size, items, _, lengths, attributes, heap, sent_at in rows:
            if heap is not None:
                is_one = items == 1 and not lengths and len(heap) == size
                self.payloads[id_] = heap if is_one else split_heap(heap, size, items, lengths)
                self.fetched += size
            self.sent_at[id_] = sent_at or None
            if attributes:
                self.attributes[id_] = StoredAttributes(attributes)

    def forget(self, row_ids: Iterable[int]) -> None:
        """Forget rows that will not be needed again."""
        for kept in (self.payloads, self.sent_at, self.attributes):
            for row_id in row_ids if kept else ():
                kept.pop(row_id, None)

    def clear(self) -> None:
        """Forget all rows. Batches that were made of them keep their facts."""
        self.payloads, self.sent_at, self.attributes = {}, {}, {}
        self._fetched_before = 0

    def begin_again(self) -> None:
        """Count from here on what is fetched, after a save."""
        self._fetched_before += self.fetched
        self.fetched = 0


class InboxLoader:
    """Loads inbox rows that lie in no page yet."""

    def __init__(self, working_set: WorkingSet, source: Source, books: BookLoader, options: LoadOptions) -> None:
        self.working_set = working_set
        self.source = source
        self.books = books
        self.cache, self.read_ahead = PayloadCache(), ReadAhead(working_set)
        self.inline = INLINE if options.with_payloads else 0
        self.with_due = options.with_due
        self.inboxes: dict[str, Inbox] = {}
        #: Rows of all inboxes that were read and not taken.
        self._held = 0
        #: Messages that this operation enqueued, in order, by origin.
        self._posted: dict[str, deque[Rows]] = {}

    def inbox(self, origin: str) -> Inbox:
        """Return the inbox of an origin."""
        inbox = self.inboxes.get(origin)
        if inbox is None:
            self.working_set.book(origin)
            inbox = self.inboxes[origin] = Inbox(self.books.stored[origin].cut, self.source.horizon)
        return inbox

    def next_rows(self, origin: str, most: int) -> Rows | None:
        """Return the next rows that lie in no page; messages that this operation enqueued come last, one by one."""
        inbox = self.inbox(origin)
        self._fill_ahead(origin)
        if self.with_due and inbox.empty and not inbox.rows:
            if not inbox.due_seen:
                self._add_due([origin])
            inbox.rows, inbox.due = inbox.due, []
            self._held += len(inbox.rows)
        if inbox.rows:
            taken = inbox.take(most)
            self._held -= len(taken)
            return rows_of(taken)
        waiting = self._posted.get(origin)
        if not waiting:
            return None
        rows = waiting.popleft()
        inbox.taken += rows.row_ids
        return rows

    def keep_posted(self, id_: int, posted: Posted) -> None:
        """Bring this message after all other rows of its inbox."""
        self._posted.setdefault(posted.origin, deque()).append(Rows.of_posted(id_, posted))
        self.cache.payloads[id_] = posted.payload

    def look_at(self, origins: Iterable[str], most: int = MOST_ROWS) -> None:
        """Read the first rows of queues that were not looked at: a few of each, or `most` in all for a mere reader."""
        fresh = sorted(set(origins).difference(self.inboxes))
        if fresh:
            self.books.load(fresh)
            rows = most if self.with_due else 0
            self._fill(fresh, max(min(rows // len(fresh), LONGEST_LOOK), FIRST_LOOK))
            if self.with_due:
                self._add_due(fresh)

    def cut_everything(self) -> None:
        """Cut all inbox rows of the ring, in the order in which they were sent."""
        after, more = -1, True
        while more:
            rows = self.source.unit.inbox.uncut(self.source.ring_id, after, ROWS_AT_ONCE)
            self.books.load(row.origin for row in rows)
            for row in rows:
                after = row.id
                if not self.books.stored[row.origin].cut.has(row.id):
                    self.working_set.pull(self.working_set.book(row.origin))
            more = len(rows) == ROWS_AT_ONCE

    def begin_again(self) -> None:
        """Go on after a save: messages enqueued here are rows like any other now."""
        self._posted = {}
        self.inboxes = {origin: inbox for origin, inbox in self.inboxes.items() if inbox.rows}
        for origin, inbox in self.inboxes.items():
            inbox.saved(self.books.stored[origin].cut)
        self._held = sum(len(inbox.rows) for inbox in self.inboxes.values())

    def forget_all_but(self, current: str | None) -> None:
        """Forget what was read of all queues but this one, after a save: a look begins again behind what is cut."""
        self.inboxes = {origin: inbox for origin, inbox in self.inboxes.items() if origin == current}
        self._held = sum(len(inbox.rows) for inbox in self.inboxes.values())

    def _fill_ahead(self, origin: str) -> None:
        """Read rows of a queue that has none left, and of those to come that brought no more rows than it so far."""
        inbox = self.inboxes[origin]
        while not inbox.rows and not inbox.empty:
            # Rows that wait here use up the budget, too.
            rows, hungry = self.read_ahead.rows(self._held), [origin]
            for name in self.read_ahead.upcoming(origin, rows):
                other = self.inbox(name)
                if not other.empty and other.brought <= inbox.brought:
                    hungry.append(name)
            look = rows // len(hungry) if self.read_ahead.is_known else FIRST_LOOK
            if len(hungry) == 1:
                # A queue that takes more, in place of others, gets twice as many each time.
                look = max(look, min(inbox.brought, self.read_ahead.rows()))
            # What is read again is no more than half of what is new.
            self._fill(hungry, max(min(look, LONGEST_LOOK), FIRST_LOOK, 2 * len(inbox.read)))

    def _fill(self, hungry: Sequence[str], look: int) -> None:
        """Read at most `look` new rows of each of these queues."""
        inboxes = {name: self.inbox(name) for name in hungry}
        most = look + max(len(inbox.read) for inbox in inboxes.values())
        rows = self.source.inbox_rows([(name, one.start) for name, one in inboxes.items()], most, self.inline)
        found: dict[str, list[PlainRow]] = {name: [] for name in hungry}
        for name, own in groupby(rows, itemgetter(0)):
            found[name] += own
        for name, inbox in inboxes.items():
            fresh = inbox.add(found[name], most)
            self._held += len(fresh)
            self.cache.keep(fresh if self.inline else ())
        self.read_ahead.note(rows, most * len(hungry))

    def _add_due(self, origins: Sequence[str]) -> None:
        """Put rows that are due behind all others; the next operation that writes lets them join."""
        for origin in origins:
            self.inbox(origin).due_seen = True
        for row in self.source.unit.inbox.due_of(self.source.ring_id, origins, self.working_set.now):
            self.inboxes[row.origin].due.append(row)
