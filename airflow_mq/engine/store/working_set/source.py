"""Source: the reads of one ring that a walk makes, and that an overlay changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...rules.message import Address
from ...rules.priority import MARK, PAST_ALL, PAST_HIGH
from .. import codec
from ..attributes import was_mark
from ..blocks import ClaimRow
from ..inbox import RowIds
from ..origins import BucketRow, GroupRow
from ..primitives import columns, names_in
from ..rows import ASLEEP, LATEST, BookRow, InboxRow, PageRow, PlainRow, StateRow
from ..set_aside import AsideRow
from ..store import AnyStore
from ..unit import Unit

#: State of a ring for readers that do not lock it, until they load its order.
UNKNOWN = StateRow(0, -LATEST, 0, [], None, 0, "")


@dataclass(frozen=True)
class LoadOptions:
    """Rows that a loader reads in addition to those that every operation needs."""

    #: Skip all queues with messages in flight. If false, skip only ordered ones.
    skip_in_flight: bool = True
    #: Fetch payloads with rows and pages, for an operation that processes messages.
    with_payloads: bool = False
    #: Let all payloads be empty, for an operation that depends on none.
    without_payloads: bool = False
    #: Include delayed rows that are due, for an operation that does not write.
    with_due: bool = False
    #: Look for newcomers until none is left, and not again at the end of the walk: the next operation follows at once.
    looks_once: bool = False


class Serviceable(NamedTuple):
    """Names of the next ready books in ring order."""

    #: Tickets and names of those that can be serviced.
    turns: list[tuple[int, str]]
    #: Names of the others, by the reason for which they are skipped.
    skipped: dict[str, list[str]]
    #: The last ticket; None if no book is left.
    last: int | None
    #: Whether the ring ends here.
    ends: bool


class Shift(NamedTuple):
    """Messages by which a reading differs from what is stored; all that was sent and lies in no page yet included."""

    #: Waiting messages and their bytes.
    messages: int = 0
    size: int = 0
    set_aside: int = 0
    set_aside_size: int = 0
    #: Of these, messages that lie in no page, and their bytes.
    uncut: int = 0
    uncut_size: int = 0
    #: Messages that wait aside.
    delayed: int = 0

    def plus(self, other: Shift) -> Shift:
        return Shift(*map(sum, zip(self, other)))


class Source:
    """Reads of one ring through a transaction, or through reads outside of one."""

    #: Whether it can leave skipped books out of a stretch.
    leaves_out = True

    def __init__(self, store: AnyStore, unit: Unit, ring_id: int, state: StateRow, horizon: int) -> None:
        """:param horizon: every inbox row with a smaller id is visible, or will never be."""
        self.store = store
        self.ring_id = ring_id
        #: The transaction to read through. A service replaces it for the time of each commit.
        self.unit = unit
        #: The ring's row as it was when the ring was locked.
        self.state, self.horizon = state, horizon

    @property
    def last_id(self) -> int:
        """The last id that was drawn when the ring was locked."""
        return self.unit.last_id

    # Books and the ring.

    def ready_books(self, after: int, limit: int, now: int, *, high: bool) -> list[BookRow]:
        """Return books of a priority that have a turn, in the ring's order, behind a ticket."""
        bounds = {"after": after, "below": ASLEEP, "limit": limit}
        rows = self.unit.rows("ready_books", ring=self.ring_id, high=high, **bounds, now=now)
        return [BookRow(*row) for row in rows]

    def woken(self, limit: int, now: int, *, high: bool) -> list[str]:
        """Return books of a priority whose budgets keep them waiting no longer, and that have no turn yet."""
        bounds = {"asleep": ASLEEP, "until": ASLEEP + now, "limit": limit}
        rows = self.unit.rows("woken_books", ring=self.ring_id, high=high, mark=MARK if high else "", **bounds)
        return [origin for (origin,) in rows]

    def serviceable(
        self, after: int, limit: int, most: int, now: int, *, ordered: bool, any_order: bool
    ) -> Serviceable:
        """Return the names of ready regular books after a ticket, those of skipped ones apart.

        :param limit: number of books to look at.
        :param most: number of books to return that can be serviced.
        :param ordered: whether messages in flight keep a queue without a setting of its own from being serviced.
        :param any_order: whether they keep every queue from it.
        """
        turns: list[tuple[int, str]] = []
        skipped: dict[str, list[str]] = {}
        looked, last = 0, None
        rows = self.unit.rows(
            "serviceable_books", ring=self.ring_id, after=after, below=ASLEEP, limit=limit, most=most, now=now,
            ordered=ordered, any_order=any_order,
        )  # fmt: skip
        for reason, count, ticket, names, tickets in rows:
            looked, last = looked + count, ticket if last is None else max(last, ticket)
            if reason:
                skipped[reason] = names_in(names)
            else:
                turns += zip(map(int, names_in(tickets)), names_in(names))
        return Serviceable(turns, skipped, last, looked < limit and len(turns) < most)

    def turns_before(self, before: int, limit: int, *, high: bool) -> list[tuple[int, str]]:
        """Return ticket and name of the last books of a priority that have a turn before a ticket, the last first."""
        return self.unit.rows("turns_before", ring=self.ring_id, high=high, before=min(before, ASLEEP), limit=limit)

    def books(self, origins: Sequence[str], now: int) -> list[BookRow]:
        """Return books by name, an empty one where none is stored."""
        rows = self.unit.rows("books", {"origin": origins}, ring=self.ring_id, now=now)
        return [BookRow(*row) for row in rows]

    def guaranteed(self) -> list[str]:
        """Return the origins with a guaranteed least, ready ones first."""
        rows = self.unit.rows("guaranteed", ring=self.ring_id) if self.state.guaranteed else ()
        return [origin for (origin,) in rows]

    def news_by_id(self, start: int, below: int) -> list[tuple[int, str]]:
        """Return origins that are not ready and have inbox rows among these ids, each after its first one."""
        return self.unit.rows("news_by_id", ring=self.ring_id, start=start, below=below)

    def news_by_origin(self, known: Iterable[str] = ()) -> list[tuple[int, str]]:
        """Return origins that are not ready and have inbox rows, each after the id of its first one.

        :param known: queues to leave out, in ascending order. Their rows are not visited, deleted ones included.
        """
        names = list(known)
        return self._news_between(zip(["", *names], [*names, PAST_ALL]))

    def high_news(self) -> list[tuple[int, str]]:
        """Return high books that are not ready and have inbox rows, each after the id of its first one."""
        return self._news_between([(MARK, PAST_HIGH)])

    def _news_between(self, ranges: Iterable[tuple[str, str]]) -> list[tuple[int, str]]:
        rows = self.unit.rows("news_by_origin", columns(("after", "below"), ranges), ring=self.ring_id)
        return sorted((id_, origin) for id_, origin in rows if id_ is not None)

    # Groups.

    def line(self, without: Iterable[str] = ()) -> list[tuple[int, str, int]]:
        """Return ticket, name and deficit of all books that have a turn, high ones first, in the ring's order.

        :param without: first parts of paths: regular books below them are left out
        """
        names = codec.write_json(sorted(without)).decode()
        return self.unit.rows("line", ring=self.ring_id, below=ASLEEP, without=names)

    def groups(self) -> list[GroupRow]:
        """Return path, deficit, level and owed origins of all groups."""
        return [GroupRow(*row) for row in self.unit.rows("groups", ring=self.ring_id)]

    def settings(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        """Return the settings of queues and groups."""
        return self.unit.origins.settings(self.ring_id, names)

    def buckets(self, names: Sequence[str]) -> list[BucketRow]:
        """Return the stored buckets of origins and groups."""
        return self.unit.origins.buckets(self.ring_id, names)

    def halted(self, now: int, *, origins: bool = False) -> tuple[list[str], list[str]]:
        """Return groups that are paused with everything below them, and groups with exhausted buckets.

        :param origins: return origins with exhausted buckets, too
        """
        rows = self.unit.rows("halted", ring=self.ring_id, now=now, origins=origins)
        return [name for name, is_exhausted in rows if not is_exhausted], [name for name, found in rows if found]

    # Pages and inbox rows.

    def pages(self, wanted: Sequence[tuple[str, int, int]], limit: int) -> list[PageRow]:
        """Return, for each (origin, first, last), at most `limit` stored pages."""
        return self.unit.pages.between(self.ring_id, wanted, limit)

    def inbox_rows(self, wanted: Sequence[tuple[str, int]], limit: int, inline: int = 0) -> list[PlainRow]:
        """Return, for each (origin, id), at most `limit` rows after that id; payloads up to `inline` bytes."""
        return self.unit.inbox.after(self.ring_id, wanted, limit, inline)

    def delayed_of(self, name: str, now: int) -> tuple[int, int | None]:
        """Return the number of messages that are not due to join a queue, and when the first of them is."""
        return self.unit.inbox.delayed_of(self.ring_id, name, now)

    def delayed_rows(self, now: int, limit: int, until: int = LATEST) -> list[tuple[int, InboxRow]]:
        """Return the first rows of the ring that are due after one time and by another, with the due time of each."""
        return self.unit.inbox.delayed(self.ring_id, now, LATEST, limit, until=until)

    def put_off_from(self, name: str, place: tuple[int, int]) -> int | None:
        """Return when the message joins its queue that waits aside since it left a place; None if none does."""
        rows = self.unit.rows("put_off_from", ring=self.ring_id, origin=name, mark=was_mark(place))
        return rows[0][0] if rows else None

    def claims_of(self, origins: Sequence[str]) -> list[ClaimRow]:
        """Return the claims of live blocks on these origins."""
        return self.unit.blocks.claims_on(self.ring_id, origins)

    def shift(self, name: str | None = None) -> Shift:
        """Return by what this reading differs from what is stored, in a queue or in all."""
        return Shift()

    def shown(self) -> Mapping[str, int | None]:
        """Return the tickets of the books that this reading shows otherwise than they are stored."""
        return {}

    def shown_asides(self) -> Mapping[Address, AsideRow | None]:
        """Return the messages that only this reading shows as set aside, and None for those that it shows as gone."""
        return {}

    # Payloads and other facts of messages, by origin and id of their rows.

    def heaps(self, wanted: RowIds) -> list[PlainRow]:
        """Return rows with their bytes."""
        rows = self.unit.inbox.heaps(self.ring_id, wanted)
        if len(rows) < sum(map(len, wanted.values())):
            # Rows that are due have not joined their inboxes.
            found = {row[1] for row in rows}
            rows += self.unit.inbox.delayed_heaps([id_ for own in wanted.values() for id_ in own if id_ not in found])
        return rows
