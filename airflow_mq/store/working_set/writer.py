"""Writer: stores changed rows, and is the one place that knows the order of the statements."""

from __future__ import annotations

from ...core.errors import StoreCorrupt
from ...core.message import Address
from ...core.priority import is_high, told
from ..rejoining import dated, rejoined_row
from ..rows import Arrival
from ..unit import Unit
from .changed_rows import ChangedRows


class Writer:
    """Writes to one ring in a transaction that holds it."""

    def __init__(self, unit: Unit, ring_id: int) -> None:
        self.unit = unit
        self.ring_id = ring_id

    def write(self, rows: ChangedRows, *, allow_high: bool) -> None:
        """Store everything that changed.

        :param allow_high: the ring has no high books yet, and may get some now.
        """
        self._write_posted(rows, allow_high)
        self._write_pages(rows)
        self._check_floors(rows)
        self.unit.books.save(self.ring_id, rows.books)
        self.unit.origins.save_groups(self.ring_id, rows.branches)
        self._write_events(rows)
        self.unit.rings.save_state(self.ring_id, rows.state, rows.ticket_floor, rows.look_floor)

    def _write_posted(self, rows: ChangedRows, allow_high: bool) -> None:
        if allow_high and any(is_high(posted.origin) for posted in rows.posted.values()):
            self.unit.rings.allow_high(self.ring_id)
        plain = [(id_, one.origin, one.payload) for id_, one in rows.posted.items() if one.note is None]
        self.unit.inbox.insert(self.ring_id, plain)
        others = [rejoined_row(id_, one) for id_, one in rows.posted.items() if one.note is not None]
        self.unit.inbox.insert_rejoined(self.ring_id, others)

    def _write_pages(self, rows: ChangedRows) -> None:
        inner: list[tuple[str, int]] = []
        edges: set[tuple[str, int, int]] = set()
        loans: set[tuple[str, int, int]] = set()
        for (origin, index), page in rows.removed_pages.items():
            if page.has_loans:
                loans |= {(origin, part.row_id, index) for part in page.slices}
                continue
            inner.extend((origin, part.row_id) for part in page.slices[1:-1])
            edges |= {(origin, part.row_id, index) for part in (page.slices[0], page.slices[-1])}
        self.unit.pages.save(self.ring_id, rows.pages)
        self.unit.pages.delete(self.ring_id, list(rows.removed_pages))
        self.unit.inbox.delete(self.ring_id, inner)
        self.unit.inbox.delete_shared(self.ring_id, sorted(edges))
        self.unit.payloads.release(rows.references)
        self.unit.loans.release(self.ring_id, sorted(loans))

    def _check_floors(self, rows: ChangedRows) -> None:
        """Raise `StoreCorrupt` if the floor of an inbox would pass a row that lies in no page."""
        raised = {one.origin: one for one in rows.raised_floors}
        wanted = [(one.origin, one.before, one.after) for one in raised.values()]
        for origin, ids in self.unit.inbox.ids_between(self.ring_id, wanted):
            lost = sorted(set(ids).difference(raised[origin].cut))
            if lost:
                raise StoreCorrupt(
                    f"saving would strand messages of {told(origin)}: inbox rows {lost[:5]} lie below its new floor "
                    f"{raised[origin].after} and in no page; nothing was changed; report this with the output of "
                    "`airflow-mq check`"
                )

    def _write_events(self, rows: ChangedRows) -> None:
        arrivals = self._arrivals(rows)
        self.unit.set_aside.save(self.ring_id, rows.asides, rows.now, rows.block, arrivals)
        events = dated(rows.events, arrivals) if arrivals else rows.events
        self.unit.events.save(self.ring_id, events, rows.now, rows.block)

    def _arrivals(self, rows: ChangedRows) -> dict[Address, Arrival]:
        """Read when the messages were sent that are set aside; some of them may be enqueued by the same operation."""
        row_ids = {at: (row.origin, row.id) for at, row in rows.aside_rows.items()}
        told = self.unit.inbox.arrivals(self.ring_id, sorted(set(row_ids.values())))
        return {
            at: told[row_id]._replace(block=rows.aside_rows[at].arrived or told[row_id].block)
            for at, row_id in row_ids.items() if row_id in told
        }  # fmt: skip
