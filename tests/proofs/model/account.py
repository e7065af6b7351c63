"""Plain account of charges: rows by block, origin, priority and processor, and the sums of days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.queue.inspect.usage import Usage
from airflow_mq.engine.rules.priority import origin_of, priority_of

from .clock import SECOND

DAY = 86_400 * SECOND
#: Time for which rows are kept by default.
KEPT = 30 * DAY
Pair = tuple[int, int]
#: An origin, its priority, and a processor.
Queue = tuple[str, str, str]


class Sums(NamedTuple):
    """Charges of a queue for messages of a processor."""

    planned: Pair = (0, 0)
    charged: Pair = (0, 0)
    #: Microseconds.
    measured: int = 0
    messages: int = 0
    size: int = 0
    attempts: int = 0
    aside: int = 0

    def plus(self, **more: Any) -> Sums:
        """Return the sums with more in the named ones."""
        return self._replace(**{name: _plus(getattr(self, name), value) for name, value in more.items()})


NOTHING = Sums()


def _plus(first: Any, second: Any) -> Any:
    return (first[0] + second[0], first[1] + second[1]) if isinstance(first, tuple) else first + second


def added(sums: Iterable[tuple[Any, Sums]]) -> dict[Any, Sums]:
    """Return the total of the sums of each key, without keys of nothing."""
    total: defaultdict[Any, Sums] = defaultdict(Sums)
    for key, one in sums:
        total[key] = total[key].plus(**one._asdict())
    return {key: one for key, one in total.items() if one != NOTHING}


def as_stored(charges: Mapping[tuple[str, ...], Any]) -> dict[Queue, Sums]:
    """Return stored charges as sums, without the programs that serviced the messages."""
    return added(
        ((origin_of(book), priority_of(book), processor), Sums(tuple(one.planned), tuple(one.charged), *one[2:]))
        for (book, processor, *_), one in charges.items()
    )


def day_of(at: int) -> str:
    """Return the day of a time, in UTC."""
    return datetime.fromtimestamp(at // SECOND, timezone.utc).date().isoformat()


def _in_usage(sums: Sums) -> tuple[Any, ...]:
    planned, charged, measured, *counts = sums
    return Weight(*planned), Weight(*charged), round(measured / SECOND, 3), *counts


class Account:
    """Charges of the blocks of a ring, in the order in which they ended."""

    def __init__(self) -> None:
        #: When a block ended, and what its queues were charged.
        self.ended: dict[int, tuple[int, dict[Queue, Sums]]] = {}
        self._latest = 0

    def end(self, block: int, at: int, sums: Mapping[Queue, Sums]) -> None:
        """Record the end of a block. Each block ends once, and one that charges nothing leaves no row."""
        assert block not in self.ended
        if found := added(sums.items()):
            self.ended[block] = at, found

    def check(self, queue: MessageQueue, now: int) -> tuple[int, int]:
        """Compare rows, sums of days and usage with this account; return how many rows are gone, and how many in sums."""
        self._latest, ring = max(self._latest, now), queue.session.ring_id
        with queue.store.reading() as unit:
            rows, rolled_up = list(unit.charges.each(ring)), unit.charges.rolled_up(ring)
            days = {day: as_stored(sums) for day, sums in unit.charges.days(ring, 0, 1 << 32)}
        found = {row.block: (row.at, as_stored(row.charges)) for row in rows}
        assert len(found) == len(rows), "a block was charged by several rows"
        gone = self.ended.keys() - found.keys()
        assert found == {block: row for block, row in self.ended.items() if block not in gone}
        assert all(self.ended[block][0] <= self._latest - KEPT for block in gone), "a row was deleted too early"
        waiting = {row.block for row in rows if row.id > rolled_up}
        expected = added(
            ((at // DAY, *key), one)
            for block, (at, sums) in self.ended.items()
            if block not in waiting
            for key, one in sums.items()
        )
        assert {(day, *key): one for day, sums in days.items() for key, one in sums.items()} == expected
        for at, by in ((0, "origin"), (2, "processor")):
            expected = added(
                ((day_of(when), key[at]), one) for when, sums in self.ended.values() for key, one in sums.items()
            )
            usage = {(one.period, one.name): one for one in queue.inspect.usage(by)}
            assert usage == {key: Usage(*key, *_in_usage(one)) for key, one in expected.items()}
        return len(gone), len(self.ended) - len(waiting)
