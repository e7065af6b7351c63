"""Inboxes: check and repair of stranded rows.

A row is stranded when its book counts it as cut and no page holds it: nothing would ever load it. A repair lowers the
book's floor to the first stranded row and records the rows above it that do lie in pages. The next operation on the
queue cuts the stranded rows, in the order of sending, behind the messages that lie in pages already.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ....rules.invariants import Violation
from ....rules.priority import is_high, told
from ....store.rows import LATEST
from ....store.unit import Unit
from ....store.working_set.books import StoredBook
from ....store.working_set.inbox import Cut, stranded
from ...session import RingSession
from ..order import all_origins

log = logging.getLogger("airflow_mq.check")


@dataclass(frozen=True)
class Repair:
    """Changes that a repair makes to one book."""

    book: str
    #: The rows that were counted as cut and lie in no page.
    rows: Sequence[int]
    #: How many messages these hold.
    messages: int
    #: Which rows lie in pages in truth.
    cut: Cut

    def __str__(self) -> str:
        rows = f"{len(self.rows)} stranded inbox rows ({self.messages} messages) are cut again" if self.rows else ""
        return f"book {told(self.book)}: {rows or f'its floor returns to {self.cut.floor}'}"


def check_inbox(origin: str, known: StoredBook, uncut: set[int], look_floor: int, last: int) -> Iterator[Violation]:
    """Check a book's floor against the last id drawn, and its uncut rows against the id from which looks read."""
    where = f"book {told(origin)}"
    if known.cut.floor > last + 1:
        yield Violation(
            where,
            f"its floor is {known.cut.floor}, above the last id drawn ({last}): what is sent next would never be cut",
        )
    unseen = [id_ for id_ in uncut if id_ < look_floor]
    if unseen and known.ticket is None and not is_high(origin):
        yield Violation(where, f"it is not in the ring, and no look would meet its inbox row {min(unseen)}")


def find_repairs(session: RingSession, unit: Unit, origins: Iterable[str], horizon: int) -> Iterator[Repair]:
    """Return what is to be repaired in the inboxes of some books.

    :param horizon: every row with a smaller id is visible here, or will never be
    """
    for origin in origins:
        working_set = session.stored_working_set(unit)
        working_set.book(origin)
        cut = working_set.stored[origin].cut
        paged = {row_id for _, page in working_set.loader.pages.read_all(origin) for row_id in page.slices.row_ids}
        ids = next((ids for _, ids in unit.inbox.ids_between(session.ring_id, [(origin, 0, LATEST)])()), [])
        lost = stranded(ids, cut, paged)
        floor = min([cut.floor, horizon, *lost])
        if floor != cut.floor:
            rows = unit.inbox.heads(session.ring_id, {origin: lost})
            truth = Cut(floor, frozenset(id_ for id_ in ids if id_ >= floor and cut.has(id_)).difference(lost))
            yield Repair(origin, lost, sum(row.items for row in rows), truth)


def repair_inboxes(session: RingSession, *, dry_run: bool) -> list[Repair]:
    """See `MessageQueue.repair`."""
    session.refuse_nested()
    with session.snapshot() as (unit, _):
        names, beyond = list(all_origins(unit, session.ring_id)), unit.rings.latest_id() + 1
        found = list(find_repairs(session, unit, names, beyond))
    if dry_run or not found:
        return found
    with session.hold.transaction() as (unit, working_set):
        # Another process may have changed the books since.
        names, horizon = [repair.book for repair in found], working_set.reading.horizon
        repaired = list(find_repairs(session, unit, names, horizon))
        for repair in repaired:
            working_set.book(repair.book)
            working_set.stored[repair.book].cut = repair.cut
            working_set.changes.books.add(repair.book)
            # The next operation looks for newcomers from its rows on.
            state = working_set.reading.state
            working_set.reading.state = state._replace(look_floor=min(state.look_floor, repair.cut.floor))
    for repair in repaired:
        log.warning("repaired ring %r: %s", session.ring, repair)
    return repaired
