"""Loader of a working set from a store: one part for each kind of row. Each part reads ahead of the walk."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import cached_property

from ...rules.changes import POSTED
from ...rules.claims import Claim
from ...rules.message import Address, Posted
from ...rules.priority import is_high
from ...rules.working_set import WorkingSet
from .books import BookLoader
from .groups import GroupLoader
from .inboxes import InboxLoader
from .pages import PageLoader
from .payloads import PayloadLoader
from .ring import RingLoader
from .source import LoadOptions, Source


class StoreLoader:
    """The part of a working set that reads from a store."""

    def __init__(self, working_set: WorkingSet, source: Source, options: LoadOptions) -> None:
        self.working_set, self.source, self.options = working_set, source, options
        self.groups = GroupLoader(working_set, source)
        self.books = BookLoader(working_set, source, self.groups, options)
        self.pages = PageLoader(working_set, source, self.books)
        self.inboxes = InboxLoader(working_set, source, self.books, options)
        self.payloads = PayloadLoader(working_set, source, self.inboxes, options)
        self.cache = self.inboxes.cache
        # What the rules ask for.
        self.load_books, self.load_page, self.next_rows = self.books.load, self.pages.load, self.inboxes.next_rows
        self.load_groups, self.settings = self.groups.load_groups, self.groups.settings
        self.load_payloads, self.facts = self.payloads.load, self.payloads.facts

    @cached_property
    def ring(self) -> RingLoader:
        """The loader of the ring's order, which many operations do not need."""
        return RingLoader(self.working_set, self.source, self.books, self.pages, self.inboxes, self.options)

    def more(self, *, high: bool) -> list[str]:
        return self.ring.more_high() if high else self.ring.more_ready()

    def look_on(self, most: int, known: Container[str], *, high: bool) -> tuple[list[str], bool]:
        return self.ring.look_on(most, known, high=high)

    def line(self) -> list[tuple[str, int]]:
        return self.ring.line()

    def load_claims(self, claims: Iterable[Claim], known: Container[tuple[str, int]] = ()) -> None:
        """Load the rows that settling these claims needs. Events contain message ids, which are hashes of payloads.

        :param known: pages whose ids are known.
        """
        keys = [(claim.origin, run.page) for claim in claims for run in claim.runs]
        self.pages.fetch(keys)
        if not self.options.without_payloads:
            pages = ((key[0], self.working_set.pages.get(key)) for key in keys if key not in known)
            self.payloads.fetch((origin, page) for origin, page in pages if page)
        self.inboxes.look_at({origin for origin, index in keys if index == self.working_set.book(origin).end - 1})

    def ticket_for(self, origin: str, row_id: int) -> int | None:
        """Return the place in the order of arrivals; None (the last) for a row that this operation enqueued."""
        floor = 0 if is_high(origin) else self.source.state.ticket_floor
        return row_id if floor <= row_id < POSTED else None

    def keep_posted(self, id_: int, posted: Posted) -> None:
        self.inboxes.keep_posted(id_, posted)
        self.payloads.keep_posted(id_, posted)

    def arrival(self, address: Address) -> tuple[int, int | None]:
        return self.pages.arrivals([address])[address]

    # Operations that span several transactions.

    def begin_again(self) -> None:
        """Forget what a save stored, before the operation continues."""
        removed = self.working_set.changes.removed_pages if self.cache.payloads else {}
        for page in removed.values():
            self.cache.forget(page.slices.row_ids)
        self.payloads.begin_again()
        self.inboxes.begin_again()

    def keep_payloads(self, most: int, current: str | None) -> None:
        """Forget the payloads of all queues but this one, if more bytes than these were fetched since the last time.

        Everything is stored. A queue that is serviced once more reads its payloads again.
        """
        if self.cache.kept <= most:
            return
        for (origin, _), page in self.working_set.pages.items():
            if page is not None and origin != current:
                page.payloads, page.resolved = [], 0
        self.cache.clear()
        self.inboxes.forget_all_but(current)

    def rename_posted(self, ids: Mapping[int, int]) -> None:
        """Use the final ids of messages that this operation enqueued."""
        for origin in {posted.origin for posted in self.working_set.changes.posted.values()}:
            if origin in self.inboxes.inboxes:
                self.inboxes.inboxes[origin].rename(ids)
        cached = self.cache.payloads
        for old in self.working_set.changes.posted:
            cached[ids[old]] = cached.pop(old)
