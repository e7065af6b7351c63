"""The verbs of a store: what one transaction can read and write, in bulk.

A verb is a statement by name. How a statement is run, and how many rows are handed over
at once, differs between databases: four primitives, which each of them brings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.blob import Reference
from ..core.errors import StoreCorrupt, UnknownRing
from ..core.events import EventRun
from ..core.message import Address
from ..core.page import PROCESSED, Page
from ..core.priority import LAST, MARK, PAST_HIGH
from ..core.shelf import Aside
from . import codec
from .rows import LATEST, Arrival, BlockRow, BookRow, LoanRow, Locked, MailRow, PageRow, RingRow, StateRow

if TYPE_CHECKING:
    from .store import Store

#: Events of one origin are kept in rows of at most so many.
EVENTS_PER_ROW = 4096
#: Above every name that an origin, of at most 255 bytes, can have.
_PAST_ALL = LAST * 64


class Unit(ABC):
    """One transaction on a store, or a series of reads outside of one."""

    #: The last id that was given out when the ring was locked.
    last_id = 0
    #: The store that this is a transaction of.
    store: Store[Any]

    # The primitives.

    @abstractmethod
    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Run a statement and fetch its rows."""

    @abstractmethod
    def run(self, statement: str, **values: Any) -> int:
        """Run a statement and tell how many rows it touched."""

    @abstractmethod
    def rows_for(self, statement: str, columns: Mapping[str, Sequence[Any]], **values: Any) -> list[Any]:
        """Run a statement for many requests (a column each) and fetch all rows."""

    @abstractmethod
    def run_for(self, statement: str, columns: Mapping[str, Sequence[Any]], **values: Any) -> None:
        """Run a statement for many requests (a column each)."""

    @abstractmethod
    def fresh_ids(self, count: int) -> list[int]:
        """New ids, larger than any before."""

    @abstractmethod
    def now(self) -> int:
        """The database's clock, in microseconds."""

    @abstractmethod
    def lock(self, ring: int) -> Locked:
        """Hold the ring's books until the end of this transaction."""

    @abstractmethod
    def try_lock(self, ring: int) -> Locked | None:
        """The same, if nobody else holds them at the moment."""

    def only(self, statement: str, **values: Any) -> Any:
        """The row that every ring has."""
        rows = self.rows(statement, **values)
        if not rows:
            raise StoreCorrupt("the ring has lost the row that tells how it stands; restore the store from a backup")
        return rows[0]

    # Rings.

    def ring(self, name: str) -> RingRow:
        """A ring by its name."""
        rows = self.rows("ring_by_name", name=name)
        if not rows:
            known = ", ".join(repr(row[0]) for row in self.rows("ring_names"))
            raise UnknownRing(
                f"there is no ring {name!r} in this store; it has {known or 'none'}; "
                f"`airflow-mq ring create {name}` makes it"
            )
        return RingRow(*rows[0])

    def save_state(self, ring: int, state: StateRow, ticket_floor: int, look_floor: int) -> None:
        """Write the floors, and count the change."""
        self.run("save_state", ring=ring, ticket_floor=ticket_floor, look_floor=look_floor, marks=state.marks)

    # Books and the ring.

    def ready_books(self, ring: int, after: int, limit: int, now: int) -> list[BookRow]:
        """Ready books in the ring's order."""
        return [BookRow(*row) for row in self.rows("ready_books", ring=ring, after=after, limit=limit, now=now)]

    def books(self, ring: int, origins: Sequence[str], now: int) -> list[BookRow]:
        """Books by name."""
        return [BookRow(*row) for row in self.rows_for("books", {"origin": origins}, ring=ring, now=now)]

    def news_by_id(self, ring: int, start: int, below: int) -> list[tuple[str, int]]:
        """Origins that are not ready and have mail among these ids, with their first one."""
        return self.rows("news_by_id", ring=ring, start=start, below=below)

    def news_by_origin(self, ring: int) -> list[tuple[str, int]]:
        """Origins that are not ready and have mail, with their first one."""
        return self._news_between(ring, "", _PAST_ALL)

    def high_news(self, ring: int) -> list[tuple[str, int]]:
        """High books that are not ready and have mail, with their first one."""
        return self._news_between(ring, MARK, PAST_HIGH)

    def _news_between(self, ring: int, after: str, below: str) -> list[tuple[str, int]]:
        rows = self.rows("news_by_origin", ring=ring, after=after, below=below)
        return [row for row in rows if row[1] is not None]

    def save_books(self, ring: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write books as they stand."""
        names = ("origin", "begin_page", "end_page", "pages", "messages", "size", "ticket", "deficit",
                 "floor", "ahead", "wake_at")  # fmt: skip
        self._write("save_book", names, rows, ring=ring)

    # Groups of origins.

    def line(self, ring: int) -> list[tuple[int, str, int]]:
        """All ready books in the ring's order: ticket, origin, deficit."""
        return self.rows("line", ring=ring)

    def branches(self, ring: int) -> list[tuple[str, int, int, str]]:
        """All groups: path, deficit, level, and of the outermost who is owed."""
        return [tuple(row) for row in self.rows("branches", ring=ring)]

    def standings(self, ring: int, origins: Sequence[str]) -> list[tuple[str, Any]]:
        """What is set under these names."""
        return [tuple(row) for row in self.rows_for("standings", {"origin": origins}, ring=ring)]

    def save_branches(self, ring: int, rows: Sequence[tuple[str, int, int, int, str]]) -> None:
        """Write groups: path, deficit, by how much that changed, level, who is owed."""
        self._write("save_branch", ("path", "deficit", "delta", "level", "owed"), rows, ring=ring)

    # Pages and mail.

    def pages(self, ring: int, wanted: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        """For each (origin, first, last): its stored pages from the first on, so many at most."""
        return [
            PageRow(*row) for row in self._read("pages", ("origin", "first", "last"), wanted, ring=ring, limit=limit)
        ]

    def mail(self, ring: int, wanted: Sequence[tuple[str, int]], limit: int, inline: int = 0) -> list[MailRow]:
        """For each (origin, id): the mail after that id, so many at most; with its bytes up to a size."""
        rows = self._read("mail", ("origin", "after"), wanted, ring=ring, limit=limit, inline=inline)
        return [MailRow(*row) for row in rows]

    def mail_between(self, ring: int, wanted: Sequence[tuple[str, int, int]]) -> list[tuple[str, list[int]]]:
        """For each (origin, first, below): the ids of its mail from the first on and below the last."""
        rows = self._read("mail_between", ("origin", "first", "below"), wanted, ring=ring)
        return [(origin, _numbers(ids)) for origin, ids in rows if ids]

    def uncut(self, ring: int, after: int, limit: int) -> list[MailRow]:
        """Mail of all origins in the order of ids; some of it may be in pages already."""
        return [MailRow(*row) for row in self.rows("uncut", ring=ring, after=after, limit=limit)]

    def heaps(self, ring: int, wanted: Sequence[tuple[str, int]]) -> list[tuple[str, int, bytes, int, int, bytes]]:
        """The bytes of these mails: origin, id, lengths, items, size, heap."""
        return self._read("heaps", ("origin", "id"), wanted, ring=ring)

    def borrowed_heaps(self, ring: int, wanted: Sequence[tuple[str, int]]) -> list[tuple[str, int, bytes]]:
        """The bytes that these mails borrow: origin, id, heap."""
        return self._read("borrowed_heaps", ("origin", "id"), wanted, ring=ring)

    def save_pages(self, ring: int, pages: Sequence[tuple[str, Page, int]]) -> None:
        """Write pages as they stand."""
        names = ("origin", "page", "items", "used", "first_index", "remaining", "remaining_size", "kept",
                 "first_mail", "last_mail", "slices", "lengths", "marks", "notes")  # fmt: skip
        self._write("save_page", names, [page_row(*entry) for entry in pages], ring=ring)

    def delete_pages(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        """Remove pages."""
        self._write("delete_page", ("origin", "page"), keys, ring=ring)

    def delete_mail(self, ring: int, keys: Sequence[tuple[str, int]]) -> None:
        """Remove mail that lay in a single page."""
        self._write("delete_mail", ("origin", "id"), keys, ring=ring)

    def delete_shared_mail(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        """Remove mail at the edge of a page, unless a neighbouring page still holds some of it."""
        self._write("delete_shared_mail", ("origin", "id", "page"), keys, ring=ring)

    def let_go(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        """Remove mail of pages that have loans: what others borrow stays until they are done; whoever lent it to
        this mail and has let go of it since is done with the last of them."""
        if not keys:
            return
        loans = {
            LoanRow(*row) for row in self._read("loans_around", ("origin", "id"), [k[:2] for k in keys], ring=ring)
        }
        mails = {(ring, origin, id_) for origin, id_, _ in keys}
        gone = {loan for loan in loans if loan[:3] in mails}
        lending = {loan.lender for loan in loans - gone}
        self._write("delete_loan", ("origin", "id"), [(loan.origin, loan.mail) for loan in sorted(gone)], ring=ring)
        lent = [key for key in keys if (ring, *key[:2]) in lending]
        self._write("let_go", ("origin", "id", "page"), lent, ring=ring)
        self.delete_shared_mail(ring, [key for key in keys if key not in lent])
        for whose, origin, id_ in sorted({loan.lender for loan in gone if loan.let_go}):
            if (whose, origin, id_) not in lending:
                self.delete_mail(whose, [(origin, id_)])
            elif not all(loan.let_go for loan in loans - gone if loan.lender == (whose, origin, id_)):
                self.run("let_go_for_all", lender_ring=whose, lender_origin=origin, lender_mail=id_)

    def insert_mail(self, ring: int, rows: Sequence[tuple[int, str, bytes]]) -> None:
        """Write single messages under ids of their own."""
        plain = [
            (id_, origin, len(payload), payload) for id_, origin, payload in rows if not isinstance(payload, Reference)
        ]
        self._write("insert_posted", ("id", "origin", "size", "heap"), plain, ring=ring)
        said = [
            (id_, origin, len(payload), codec.write_json(said_of_blobs([payload])), bytes(payload))
            for id_, origin, payload in rows if isinstance(payload, Reference)
        ]  # fmt: skip
        self._write("insert_posted_blob", ("id", "origin", "size", "attributes", "heap"), said, ring=ring)

    def insert_rejoined(self, ring: int, rows: Sequence[tuple[int, str, int, bytes, bytes, int]]) -> None:
        """Write messages that go back into their queues, under ids of their own, as old as they are."""
        self._write("insert_rejoined", ("id", "origin", "size", "attributes", "heap", "sent_at"), rows, ring=ring)

    def arrivals(self, ring: int, mails: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Arrival]:
        """When these mails were sent, and the first block since."""
        rows = self._read("arrivals", ("origin", "id"), mails, ring=ring)
        return {(row[0], row[1]): Arrival(row[2], row[3]) for row in rows}

    def release_blobs(self, places: Sequence[tuple[int, int]]) -> None:
        """Messages that referred to payloads kept apart are gone: their mails, and their places there."""
        self._write("release_blobs", ("mail", "place"), places)

    # What became of messages.

    def save_asides(
        self, ring: int, asides: Mapping[Address, Aside | None], now: int, block: int | None = None,
        arrivals: Mapping[Address, Arrival] | None = None,
    ) -> None:  # fmt: skip
        """Remember why messages were set aside, and when they arrived; forget those that are no more."""
        arrived = arrivals or {}
        gone = [(at.book, at.page, at.index) for at, aside in asides.items() if aside is None]
        kept = [
            (at.book, at.page, at.index, aside.id, aside.size, codec.pack_weight(aside.weight),
             codec.pack_weight(aside.limit), aside.reason, *arrived.get(at, (now, block)))
            for at, aside in asides.items() if aside is not None
        ]  # fmt: skip
        self._write("delete_aside", ("origin", "page", "item"), gone, ring=ring)
        names = ("origin", "page", "item", "id", "size", "weight", "weight_limit", "reason", "arrived_at",
                 "arrived_block")  # fmt: skip
        self._write("save_aside", names, kept, ring=ring, at=now, block=block)

    def save_events(self, ring: int, runs: Iterable[EventRun], now: int, block: int | None = None) -> None:
        """Keep events, packed: neighbours of one origin share a row."""
        rows: list[tuple[str, int, list[EventRun]]] = []
        for run in (part for whole in runs for part in whole.split(EVENTS_PER_ROW)):
            if rows and rows[-1][0] == run.origin and rows[-1][1] + len(run.ids) <= EVENTS_PER_ROW:
                origin, count, together = rows[-1]
                together.append(run)
                rows[-1] = (origin, count + len(run.ids), together)
            else:
                rows.append((run.origin, len(run.ids), [run]))
        plain = [(origin, count, codec.pack_events(together)) for origin, count, together in rows]
        self._insert_events(ring, plain, now, block)

    def _insert_events(self, ring: int, rows: Sequence[tuple[str, int, bytes]], now: int, block: int | None) -> None:
        if rows:
            ids = self.fresh_ids(len(rows))
            plain = [(id_, *row) for id_, row in zip(ids, rows)]
            self._write("insert_event", ("id", "origin", "events", "data"), plain, ring=ring, at=now, block=block)

    # Blocks.

    def claims_of(self, ring: int, origins: Sequence[str]) -> list[tuple[str, bytes]]:
        """What live blocks hold of these origins."""
        return self.rows_for("claims_of", {"origin": origins}, ring=ring)

    def next_block(self, ring: int) -> int:
        """Return the number of a ring's next block. Under the ring's lock."""
        number: int = self.only("next_block", ring=ring)[0]
        return number

    def insert_block(self, ring: int, block: BlockRow, claims: Sequence[tuple[int, str, bytes, bool]]) -> None:
        """Write a block and what it claimed."""
        self.run(
            "insert_block", ring=ring, id=block.id, number=block.number, key=block.key, token=block.token,
            by_hand=block.by_hand, seconds=block.seconds, deadline=block.deadline, planned_at=block.planned_at,
            details=block.details,
        )  # fmt: skip
        # What holds no message of the window does not hold up its queue.
        rows = [(seq, origin, data, block.by_hand or not held) for seq, origin, data, held in claims]
        self._write("insert_claim", ("seq", "origin", "data", "by_hand"), rows, ring=ring, block=block.id)

    def blocks(self, ring: int, state: int | None = None, before: int = LATEST, limit: int = LATEST) -> list[BlockRow]:
        """Blocks, the latest first; of any state, if none is said."""
        wanted = -1 if state is None else state
        return [BlockRow(*row) for row in self.rows("blocks", ring=ring, state=wanted, before=before, limit=limit)]

    def block(self, statement: str, **values: Any) -> BlockRow | None:
        """The block that this statement finds."""
        rows = self.rows(statement, **values)
        return BlockRow(*rows[0]) if rows else None

    def _read(self, statement: str, names: Sequence[str], wanted: Sequence[Any], **values: Any) -> list[Any]:
        """The rows for many requests."""
        return self.rows_for(statement, dict(zip(names, map(list, zip(*wanted)))), **values) if wanted else []

    def _write(self, statement: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]], **values: Any) -> None:
        if rows:
            self.run_for(statement, dict(zip(names, map(list, zip(*rows)))), **values)


def _numbers(ids: str | list[int]) -> list[int]:
    """Ids as a database returns many at once: an array, or text with commas."""
    return [int(id_) for id_ in ids.split(",")] if isinstance(ids, str) else ids


def said_of_blobs(payloads: Iterable[bytes]) -> dict[str, dict[str, str]]:
    """What is said beside messages of which some carry references; the tables count their uses by it."""
    said = {
        str(place): f"{payload.hash.hex()}:{payload.size}"
        for place, payload in enumerate(payloads) if isinstance(payload, Reference)
    }  # fmt: skip
    return {"blobs": said} if said else {}


def page_row(origin: str, page: Page, kept: int) -> tuple[Any, ...]:
    plain_marks = bytes([PROCESSED]) * page.first_index + bytes(len(page.marks) - page.first_index)
    return (
        origin, page.index, len(page.lengths), page.used, page.first_index, page.remaining, page.remaining_size, kept,
        page.slices[0].mail, page.slices[-1].mail, codec.pack_slices(page.slices), codec.pack_numbers(page.lengths),
        b"" if page.marks == plain_marks else bytes(page.marks), codec.pack_notes(page.notes),
    )  # fmt: skip
