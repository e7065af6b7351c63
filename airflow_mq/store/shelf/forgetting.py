"""What a shelf forgets: a plan, and what somebody else changed meanwhile."""

from __future__ import annotations

from ...core.page import Page
from ..rows import StateRow
from .books import Books
from .known import NO_PAGE


class Forgetting(Books):
    """The part of a shelf that goes back to what is stored."""

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
        return page is not None and len(page.lengths) > self.page_base.get(key, NO_PAGE).items

    def _restore(self, key: tuple[str, int], page: Page) -> None:
        base = self.page_base.get(key, NO_PAGE)
        page.first_index = base.first_index
        page.marks = bytearray(base.marks) + bytes(len(page.lengths) - base.items)
        page.remaining = base.remaining + len(page.lengths) - base.items
        page.remaining_size = base.remaining_size + page.held(base.items, len(page.lengths))

    def refresh(self, state: StateRow, keep: str | None) -> None:
        """Somebody else ended a block meanwhile: look again at what was in flight, and was passed by.

        Everything else is this shelf's alone, and what it changed of it is still to be written.
        """
        self.state = state
        others = [o for o, known in self.origins.items() if known.row.in_flight and o != keep and o in self.books]
        self.pages = {key: page for key, page in self.pages.items() if key[0] not in others}
        books = {origin: self.books.pop(origin) for origin in others}
        for origin in others:
            self.inboxes.pop(origin, None)
        self.load_books(others)
        for origin, book in books.items():
            fresh = self.books[origin]
            book.__dict__.update({**fresh.__dict__, "deficit": book.deficit})
            self.books[origin] = book
            if not book.is_ready:
                # The block took its last message, and it out of the ring: what is posted to it knits it anew.
                self.circle(origin).drop(origin)
