"""Working set of a ring in a store: a loader, the changes, and a writer.

`loader` composes the parts that read: `books`, `groups`, the `ring`, `pages`, `inboxes` and `payloads`, all through a
`source`. A `Collector` turns the changes into rows, which a `Writer` stores. `overlay` is a source that keeps such rows
in memory, for looking ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...rules.book import BACKOFF, BUDGET, Book
from ...rules.changes import Changes
from ...rules.config import RingConfig
from ...rules.working_set import WorkingSet
from ..rows import Locked
from ..unit import Unit
from .loader import StoreLoader
from .overlay import Overlay
from .ring import MEET_IN_ALL
from .source import UNKNOWN, LoadOptions, Source
from .writer import ChangedRows, Collector, Existing, Writer


class StoredSet(WorkingSet):
    """The working set of one operation on a ring in a store."""

    loader: StoreLoader

    def __init__(self, config: RingConfig, now: int, source: Source, options: LoadOptions, **modes: Any) -> None:
        """Begin without any book; for `modes`, see `WorkingSet`.

        :param source: the store, or an overlay that shows it otherwise
        """
        super().__init__(config, now, lambda working_set: StoreLoader(working_set, source, options), **modes)
        self.reading, self.ring_id, self.debt = source, source.ring_id, source.state.debt
        #: Books as they were loaded.
        self.stored = self.loader.books.stored
        #: Steps to take in the same transaction after everything is written.
        self.after_save: list[Callable[[], object]] = []
        #: Whether references to external payloads went: some payloads may be unused now.
        self.released_payloads = False
        #: The state of the ring with the floors and places that were last written.
        self.written = source.state

    @property
    def unit(self) -> Unit:
        """The transaction to read through."""
        return self.reading.unit

    def save(self) -> None:
        """Write all changes, in a transaction that holds the ring; the operation may go on in it."""
        unit = self.unit
        rows = self.take_changes(unit.fresh_ids, partial(unit.inbox.still_stored, self.ring_id))
        self.written = rows.state
        # Each write counts as a change of the ring.
        self.reading.state = self.reading.state._replace(version=self.reading.state.version + 1)
        Writer(unit, self.ring_id).write(rows, allow_high=not self.config.high)
        for step in self.after_save:
            step()

    def save_in(self, unit: Unit, locked: Locked) -> None:
        """Write all changes in another transaction than that which was read through, and go on reading there."""
        source, read_through = self.reading, self.reading.unit
        self.changes.delay(locked.now - self.now)
        self.now, source.unit, source.state = locked.now, unit, locked.state
        try:
            self.save()
        finally:
            source.unit = read_through
        source.horizon = locked.horizon

    def locked_after(self, locked: Locked) -> Locked:
        """Return a locked ring as it is since this working set was saved there."""
        return locked._replace(state=self.written._replace(version=self.reading.state.version))

    @contextmanager
    def within(self, unit: Unit, locked: Locked) -> Iterator[None]:
        """Read through another transaction that holds the ring, and let `save` write there."""
        source = self.reading
        read_through, source.unit = source.unit, unit
        self.now, source.state, source.horizon = locked.now, locked.state, locked.horizon
        try:
            yield
        finally:
            source.unit = read_through

    def take_changes(self, fresh_ids: Callable[[int], list[int]], existing: Existing | None = None) -> ChangedRows:
        """Return all changes as rows, and begin a new record."""
        self.charge_measured()
        rows = Collector(self, self.loader, existing).rows(fresh_ids)
        self.released_payloads = self.released_payloads or bool(rows.references)
        self.loader.begin_again()
        for ring in (self.ring, self.high):
            ring.moved.clear()
            ring.favoured = []
        self.changes = Changes()
        return rows

    def wakes_at(self, book: Book) -> int | None:
        """Return when a queue whose backoff or budget keeps it waiting is serviced again; None for any other one."""
        if book.skipped == BACKOFF:
            return self.stored[book.origin].wake_at
        return max(bucket.wake_at for bucket in self.buckets_of(book)) if book.skipped == BUDGET else None

    def may_wait(self, name: str) -> bool:
        """Return whether a queue waits for its backoff, or messages of it are delayed."""
        self.book(name)
        return self.stored[name].wake_at > self.now or bool(self.reading.delayed_of(name, self.now)[0])

    def end_backoff(self, name: str) -> bool:
        """Try a queue and its messages that wait aside from now on; return whether it or they waited."""
        self.book(name)
        waited = self.stored[name].wake_at > self.now
        if waited:
            self.changes.waits[name] = 0
        return bool(self.unit.inbox.end_waits(self.ring_id, name, self.now)) or waited

    def forget(self) -> None:
        """Drop all that was loaded: it refers to itself, and Python's collector of such cycles may come late."""
        vars(self.loader).clear()
        self.books, self.pages = {}, {}


__all__ = [
    "MEET_IN_ALL",
    "UNKNOWN",
    "LoadOptions",
    "Overlay",
    "Source",
    "StoredSet",
]
