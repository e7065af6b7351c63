"""The inbox of one origin: which rows lie in pages, and where the next look begins.

Senders insert rows and wait for no other transaction. A row's id is drawn before its transaction commits, so rows
become visible in any order: below ids that were read before, or above. Two values of a book record which of its rows
lie in pages:

*floor*    Every row below it lies in a page, or lay in one until it was processed. None will appear there.
*ahead*    Of the rows from the floor on, these lie in pages, and no others. Deleted rows may be missing here.

Only a transaction that holds the ring writes them, together with the pages. It knows a *horizon*: every row with a
smaller id is visible to it, or will never be. Three facts make the horizon true:

1. A transaction gets its number before it draws an id (the default of `inbox.id`, and `fresh_ids`).
2. Who locks the ring reads the last id drawn, under the sequence's lock, before it gets a number of its own, and
   stores both as a mark. So a transaction with a larger number draws larger ids only.
3. Once all transactions with smaller numbers than the mark's have ended, every row up to the mark's id is visible, or
   was rolled back. A commit that waits for a standby has not ended. The horizon is one more than that id.

A promoted standby keeps the facts: its sequence continues above every id of a committed row, at once up to 32 above,
and its transaction numbers continue above every number in a committed mark. On SQLite one transaction writes at a
time, and the horizon is one more than the last id.

What follows, and what `tests/store/test_inbox.py` proves over all interleavings of senders, a settler that posts and
a service in slices:

- Ids that the holder draws itself are not below its horizon. It drew them after it had read the last id.
- Looks go on behind the last row that was read, but never behind the horizon: from there on a sender may still commit
  a smaller id than those read. What was read from there on (`read`) is skipped.
- The floor moves to the horizon at most, and not past the first row that was read and not cut.
- Between two slices of a service the horizon moves on. An inbox that keeps rows keeps its horizon. One that keeps
  none begins again at the floor, under the new horizon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from operator import itemgetter
from typing import NamedTuple

from ..rows import PlainRow

#: Rows of a queue that a look brings at least, and at most.
FIRST_LOOK, LONGEST_LOOK = 8, 4096


class Cut(NamedTuple):
    """Which rows of an inbox lie in pages, as a book records it."""

    floor: int
    ahead: frozenset[int]

    def has(self, id_: int) -> bool:
        """Return whether this row lies in a page, or lay in one."""
        return id_ < self.floor or id_ in self.ahead


class Inbox:
    """The rows of one origin that are in no page yet, as far as they were read."""

    def __init__(self, cut: Cut, horizon: int) -> None:
        self.cut = cut
        self.horizon = max(horizon, cut.floor)
        #: The largest id that was read.
        self.after = cut.floor - 1
        #: Rows from the horizon on that were read.
        self.read: set[int] = set()
        #: Rows that were read and not taken, in the order of their looks.
        self.rows: list[PlainRow] = []
        #: Rows that were taken to be cut, by their ids.
        self.taken: list[int] = []
        #: Number of rows that looks brought.
        self.brought = 0
        #: Whether the last look brought all there was.
        self.empty = False
        #: Rows that are due and have not joined yet, for readers that write nothing.
        self.due: list[PlainRow] = []
        self.due_seen = False

    @property
    def start(self) -> int:
        """The id behind which the next look begins."""
        return min(self.after, self.horizon - 1)

    def add(self, rows: Sequence[PlainRow], asked: int) -> list[PlainRow]:
        """Take in the rows that a look brought, in order; return those that are new and in no page.

        :param asked: how many the look was to bring at most, those read before included
        """
        fresh = [row for row in rows if row[1] not in self.read and row[1] not in self.cut.ahead]
        self.after = max([self.after, *(row[1] for row in rows[-1:])])
        self.read.update(row[1] for row in rows[bisect_left(rows, self.horizon, key=itemgetter(1)) :])
        self.rows += fresh
        self.brought += len(rows)
        self.empty = len(rows) < asked
        return fresh

    def take(self, most: int) -> list[PlainRow]:
        """Take the next rows, to be cut: at least one, and none behind those with `most` messages."""
        ends = list(accumulate(map(itemgetter(3), islice(self.rows, most))))
        count = bisect_left(ends, most) + 1
        taken = self.rows[:count]
        del self.rows[:count]
        self.taken += map(itemgetter(1), taken)
        return taken

    def rename(self, ids: Mapping[int, int]) -> None:
        """Give rows that were posted here the ids that were drawn for them."""
        self.taken = [ids.get(id_, id_) for id_ in self.taken]

    def cut_now(self) -> Cut:
        """Which rows lie in pages, now that those taken do."""
        if not self.taken and not self.empty:
            return self.cut
        reached = self.horizon
        if self.rows or not self.empty:
            reached = min(self.next_id, reached)
        floor = max(self.cut.floor, reached)
        return Cut(floor, frozenset(id_ for id_ in (*self.cut.ahead, *self.taken) if id_ >= floor))

    @property
    def next_id(self) -> int:
        """The id of the next row to take; if none was read, the first id that was not."""
        return self.rows[0][1] if self.rows else self.after + 1

    def saved(self, cut: Cut) -> None:
        """Go on after a save. What processors posted is a row like any other now, behind those that were read."""
        self.cut, self.taken, self.empty = cut, [], False


def stranded(ids: Iterable[int], cut: Cut, paged: Collection[int]) -> list[int]:
    """Of the rows of an inbox, those that count as cut and lie in no page: no look would ever bring them."""
    return sorted(id_ for id_ in ids if cut.has(id_) and id_ not in paged)
