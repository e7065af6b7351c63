"""Repository of books: the queue of each origin, its place in the ring, and depths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .primitives import Repository
from .rows import BookRow, FirstRow

_COLUMNS = (
    "origin", "begin_page", "end_page", "pages", "messages", "size", "ticket", "deficit", "floor", "ahead", "wake_at",
)  # fmt: skip


class LineRow(NamedTuple):
    """A ready book of a ring with paths."""

    ticket: int
    origin: str
    deficit: int


class TurnRow(NamedTuple):
    """The place of a ready book."""

    origin: str
    ticket: int


class TicketsRow(NamedTuple):
    """Number and range of tickets, and the number of those before one."""

    before: int
    total: int
    lowest: int | None
    highest: int | None


class SummaryRow(NamedTuple):
    """Figures of a book; `first` is the oldest inbox row of its first waiting page."""

    origin: str
    messages: int
    size: int
    floor: int
    ahead: bytes
    first: int | None


class DepthRow(NamedTuple):
    """Figures of a queue beyond its pages; `oldest` is when its first message was sent."""

    origin: str
    inbox_rows: int
    items: int
    size: int
    oldest: int | None
    lately: int
    kept: int


class TotalsRow(NamedTuple):
    """Depth of a queue, and of all queues of its ring."""

    origin: str
    messages: int
    size: int
    sent: int | None
    all_messages: int
    all_size: int
    all_sent: int | None
    queues: int


class Books(Repository):
    """Books of a ring."""

    __slots__ = ()

    def ready(self, ring: int, after: int, limit: int, now: int) -> list[BookRow]:
        """Return ready books after a ticket, in ring order."""
        rows = self.unit.rows("ready_books", ring=ring, after=after, limit=limit, now=now)
        return [BookRow(*row) for row in rows]

    def named(self, ring: int, origins: Sequence[str], now: int) -> list[BookRow]:
        """Return books by name, an empty one where none is stored."""
        return [BookRow(*row) for row in self.unit.rows_for("books", {"origin": origins}, ring=ring, now=now)]

    def save(self, ring: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write books: the columns of `BookRow` up to `wake_at`."""
        self._write("save_book", _COLUMNS, rows, ring=ring)

    def line(self, ring: int) -> list[LineRow]:
        """Return all ready books, in ring order."""
        return [LineRow(*row) for row in self.unit.rows("line", ring=ring)]

    def guaranteed(self, ring: int) -> list[str]:
        """Return origins with a guaranteed least, those with a ready book first."""
        return [origin for (origin,) in self.unit.rows("guaranteed", ring=ring)]

    def turns(self, ring: int, text: str, limit: int) -> list[TurnRow]:
        """Return ready books in ring order whose name contains a text."""
        return [TurnRow(*row) for row in self.unit.rows("turns", ring=ring, text=text, limit=limit)]

    def oldest(self, ring: int, text: str, limit: int) -> list[FirstRow]:
        """Return ready books whose name contains a text, by their oldest inbox row."""
        return [FirstRow(*row) for row in self.unit.rows("oldest_books", ring=ring, text=text, limit=limit)]

    def deepest(self, ring: int, text: str, limit: int) -> list[str]:
        """Return queues whose name contains a text, those with the most messages first."""
        return [origin for origin, _ in self.unit.rows("backlog", ring=ring, text=text, limit=limit)]

    def totals(self, ring: int, limit: int, *, oldest: bool) -> list[TotalsRow]:
        """Return the deepest or oldest queues, each with the totals of the ring."""
        return [TotalsRow(*row) for row in self.unit.rows("totals", ring=ring, oldest=oldest, limit=limit)]

    def depths(
        self, ring: int, requests: Sequence[tuple[str, int, int]], *, most: int, latest: int, since: int
    ) -> list[DepthRow]:
        """Return the depth of queues beyond their pages.

        :param requests: name, floor and first page of each book
        :param most: inbox rows and pages to add up
        :param latest: inbox rows to search for messages sent since `since`
        """
        names = ("origin", "floor", "begin")
        rows = self._read("depths", names, requests, ring=ring, most=most, latest=latest, since=since)
        return [DepthRow(*row) for row in rows]

    def count(self, ring: int, ticket: int | None, low: int, top: int) -> TicketsRow:
        """Count the tickets of a ring from `low` to `top`, and those before a ticket."""
        return TicketsRow(*self.unit.rows("count_before", ring=ring, ticket=ticket, low=low, top=top)[0])

    def before(self, ring: int, ticket: int | None, low: int) -> list[str]:
        """Return ready books from ticket `low` to before `ticket`, in ring order."""
        return [origin for (origin,) in self.unit.rows("tickets_before", ring=ring, ticket=ticket, low=low)]

    def advance(self, ring: int, ticket: int, top: int, shift: int) -> None:
        """Lower the tickets from `ticket` to `top`."""
        self.unit.run("advance_tickets", ring=ring, ticket=ticket, shift=shift, top=top)

    def set_tickets(self, ring: int, tickets: Sequence[tuple[str, int]]) -> None:
        """Give ready books new tickets."""
        self._write("set_ticket", ("origin", "ticket"), tickets, ring=ring)

    def forget_deficits(self, ring: int) -> None:
        """Reset the deficits of all books."""
        self.unit.run("forget_deficits", ring=ring)

    def names(self, ring: int, after: str, limit: int) -> list[str]:
        """Return names of books, after a name."""
        return [origin for (origin,) in self.unit.rows("every_book", ring=ring, after=after, limit=limit)]

    def origins(self, ring: int, after: str, first: str, below: str, limit: int) -> list[str]:
        """Return names of books with messages in a range, after a name."""
        rows = self.unit.rows("origins_from", ring=ring, after=after, first=first, below=below, limit=limit)
        return [origin for (origin,) in rows]

    def known(self, ring: int, origins: Sequence[str]) -> list[str]:
        """Return which of these queues have a book, an inbox row or a delayed row."""
        return [origin for (origin,) in self.unit.rows_for("known_origins", {"origin": origins}, ring=ring)]

    def summaries(self, ring: int, after: str, limit: int) -> list[SummaryRow]:
        """Return the figures of all books, after a name."""
        return [SummaryRow(*row) for row in self.unit.rows("all_books", ring=ring, after=after, limit=limit)]

    def overtaken(self, ring: int) -> list[bytes]:
        """Return for each book the packed ids of inbox rows that were cut before rows with smaller ids."""
        return [bytes(ids) for (ids,) in self.unit.rows("books_ahead", ring=ring)]
