"""Loader of buckets: the balances of budgets over time, read only where a budget is set."""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.book import BUDGET, Book, QueueSettings
from ...rules.budget import Balance, Bucket
from ...rules.groups import names_above
from ...rules.priority import books_of, origin_of
from ...rules.weight import Weight
from ...rules.working_set import WorkingSet
from .. import codec
from ..origins import BucketRow
from .groups import GroupLoader
from .source import Source


class BucketLoader:
    """Loads the buckets of loaded books once each."""

    def __init__(self, working_set: WorkingSet, source: Source, groups: GroupLoader) -> None:
        self.working_set, self.source, self.groups = working_set, source, groups
        #: How often the settings of each loaded bucket had changed.
        self._terms: dict[str, int] = {}
        #: Buckets that are stored as ones whose queues wait.
        self._waiting: set[str] = set()

    def names(self, name: str, own: QueueSettings) -> list[str]:
        """Return the names of the budgets that pay for messages of a book with these settings of its own."""
        origin = origin_of(name)
        above = names_above(origin) if self.working_set.config.paths else ()
        found = [group for group in above if self.groups.settings(group).budget]
        return [*found, origin] if own.budget else found

    def load(self, budgeted: Iterable[Book]) -> None:
        """Load the buckets of these books; let those wait that a bucket keeps waiting."""
        known, now = self.working_set.buckets, self.working_set.now
        wanted = dict.fromkeys(name for book in budgeted for name in book.budgets if name not in known)
        stored = {row.path: row for row in self.source.buckets(list(wanted))} if wanted else {}
        for name in wanted:
            row, budget = stored.get(name), self.groups.settings(name).budget
            assert budget is not None, "a bucket has a budget"
            known[name] = Bucket(name, budget, now, None if row is None else balance_of(row))
            self._terms[name] = 0 if row is None else row.terms
            if row is not None and row.wake_at:
                self._waiting.add(name)
        for book in budgeted:
            if not book.skipped and any(known[name].wake_at > now for name in book.budgets):
                book.skipped = BUDGET

    def changed_rows(self) -> list[BucketRow]:
        """Return the buckets that changed, as rows."""
        known = self.working_set.buckets
        rows = [
            BucketRow(path, codec.write_json(known[path].balance).decode(), known[path].wake_at, self._terms[path])
            for path in sorted(self.working_set.changes.buckets)
        ]
        self._waiting.update(row.path for row in rows if row.wake_at)
        return rows

    def may_wake(self) -> list[str]:
        """Return the books of the origins whose buckets kept them waiting and changed: they may come earlier."""
        changed = self.working_set.changes.buckets & self._waiting
        return [name for path in sorted(changed) for name in books_of(path)]

    def wake_at(self, name: str) -> int:
        """Return until when the bucket of its origin keeps a loaded book waiting; 0 if it does not."""
        origin = origin_of(name)
        if origin not in self.working_set.books[name].budgets:
            return 0
        wake_at = self.working_set.buckets[origin].wake_at
        return wake_at if wake_at > self.working_set.now else 0


def balance_of(row: BucketRow) -> Balance:
    """Return the balance of a stored bucket; it is full if none is stored."""
    wake_at = max(row.wake_at, 0)
    if not row.balance:
        return Balance(wake_at=wake_at)
    with codec.reading(f"the balance of {row.path!r}"):
        left, refilled_to, needs, _, exhausted_at, *owed = codec.read_json(row.balance)
        needs, owed = Weight(*needs) if needs else None, tuple(*owed) or (0, 0)
        return Balance(tuple(left), refilled_to, needs, wake_at, exhausted_at, owed)
