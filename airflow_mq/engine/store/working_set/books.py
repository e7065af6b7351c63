"""Loader of books, and the places of books in their rings."""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.book import DEFAULT_SETTINGS, Book
from ...rules.priority import origin_of
from ...rules.working_set import WorkingSet
from .. import codec
from ..rows import BookRow, settings_of
from .buckets import BucketLoader
from .groups import GroupLoader
from .inbox import Cut
from .source import LoadOptions, Source

#: Number of ready books that one look at the ring brings, and for how many the walk fetches ahead.
RING_SLICE = 128


class StoredBook:
    """The row of a book, and the parts of it that change while the book is loaded."""

    def __init__(self, row: BookRow) -> None:
        self.row = row
        #: Which rows of the inbox lie in stored pages.
        self.cut = Cut(row.floor, frozenset(codec.unpack_numbers(row.ahead)[0] if row.ahead else ()))
        self.ticket = row.ticket
        self.wake_at = row.wake_at


class BookLoader:
    """Loads books by name, and keeps their stored state."""

    def __init__(self, working_set: WorkingSet, source: Source, groups: GroupLoader, options: LoadOptions) -> None:
        self.working_set = working_set
        self.source = source
        self.groups = groups
        self.options = options
        self.buckets = BucketLoader(working_set, source, groups)
        self.stored: dict[str, StoredBook] = {}

    def load(self, origins: Iterable[str]) -> None:
        """Load books that are not loaded yet; an origin without a stored book gets an empty one."""
        books = self.working_set.books
        wanted = [origin for origin in dict.fromkeys(origins) if origin not in books]
        if not wanted:
            return
        self.take(self.source.books(wanted, self.working_set.now))
        self.take(
            BookRow(origin, 0, 0, 0, 0, 0, None, 0, 0, b"", 0, False, False, None)
            for origin in wanted if origin not in books
        )  # fmt: skip

    def take(self, rows: Iterable[BookRow]) -> None:
        """Load the books of these rows that are not loaded yet, with what pays for their messages."""
        fresh = [row for row in rows if row.origin not in self.working_set.books]
        self.groups.load_settings(row.origin for row in fresh)
        budgeted = [book for book in map(self._take, fresh) if book.budgets]
        if budgeted:
            self.buckets.load(budgeted)

    def _take(self, row: BookRow) -> Book:
        origin = row.origin
        settings = settings_of(row.settings)
        budgets = (
            self.buckets.names(origin, settings)
            if settings is not DEFAULT_SETTINGS or self.working_set.config.paths
            else ()
        )
        if budgets or self.working_set.config.paths:
            self.groups.known.setdefault(origin_of(origin), settings)
            settings = self.groups.bounded(origin, settings)
        book = Book(
            origin, row.begin_page, row.end_page, row.pages, row.messages, row.size, row.deficit, "", settings, budgets
        )
        is_ordered = self.options.skip_in_flight or self.working_set.is_ordered(book)
        with_group = self.groups.is_group_paused(origin)
        book.skipped = row.skip_reason(self.working_set.now, ordered=is_ordered, with_group=with_group)
        self.working_set.books[origin] = book
        self.stored[origin] = StoredBook(row)
        return book
