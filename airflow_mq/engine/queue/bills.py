"""Bills of a ring: closing days, and reading what a tenant was charged on closed ones."""

from __future__ import annotations

import secrets
import sqlite3
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import date
from itertools import groupby, starmap, takewhile
from operator import itemgetter
from typing import Any, TypeAlias

from ...bills import EPOCH, SALT_BYTES, Leaf, bill_of, canonical, content_of, leaf_hash, path_of, rows_of
from ...tariff import Tariff
from ..rules.charging import DAY
from ..rules.config import RingConfig
from ..rules.errors import InvalidInput
from ..rules.events import EventRun, Fate
from ..rules.groups import head_of
from ..rules.priority import origin_of, priority_of
from ..store import codec
from ..store.bills import BillDay, date_of
from ..store.charges import ChargeRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .session import RingSession

#: What a tenant was charged for one block (None without one), origin, priority and processor.
Entry: TypeAlias = "dict[str, Any]"


def close_day(unit: Unit, ring: int, name: str, working_set: StoredSet) -> bool:
    """Close the next day that is over, and return whether there was one; requires the ring lock.

    A row belongs to the day of its time, or to the first open one if that day is closed: an end that comes late, or
    a clock that was set back, changes no closed day.
    """
    last, config, today = unit.bills.last(ring), working_set.config, working_set.now // DAY
    if last is None:
        # The number of the store's bills, which the first header follows.
        began = next((row.at // DAY for row in unit.charges.each(ring) if row.at // DAY <= today), None)
        last = None if began is None else BillDay(began - 1, 0, b"", b"", 0)
    if last is None or last.day + 1 >= today:
        return False
    before = last.header.hash if last.before else secrets.token_bytes(SALT_BYTES)
    number = unit.bills.days(ring, limit=1)[0].before if last.before else before
    day, after, price = last.day + 1, last.last, price_of(config, date_of(last.day + 1))

    def rows() -> Iterator[ChargeRow]:
        nonlocal after
        # A row that is ahead of today, by a clock that was wrong, does not keep those behind it.
        for row in takewhile(lambda row: not day < row.at // DAY <= today, unit.charges.each(ring, after)):
            after = row.id
            yield row

    def leaf(tenant: str, entries: Iterable[Entry]) -> tuple[bytes, str, bytes, bytes]:
        content = canonical(content_of(bytes(number).hex(), name, tenant, date_of(day).isoformat(), price, []))
        # The first list is the one of entries. As objects, those of a day take much memory.
        data = content.replace(b"[]", b"[%b]" % b",".join(map(canonical, entries)), 1)
        salt = secrets.token_bytes(SALT_BYTES)
        return leaf_hash(salt, data), tenant, salt, data

    with closing(sqlite3.connect("")) as file:
        file.execute("CREATE TABLE leaf (hash, tenant, salt, data)")
        leaves = starmap(leaf, entries_of(rows(), config.paths))
        file.executemany("INSERT INTO leaf VALUES (?, ?, ?, ?)", leaves)
        # The order of hashes shows nothing of the other tenants.
        hashes = [one for (one,) in file.execute("SELECT hash FROM leaf ORDER BY hash")]
        tree = rows_of(hashes)
        closed = BillDay(day, after, before, tree[-1][0], len(hashes))
        stored = enumerate(file.execute("SELECT tenant, salt, data FROM leaf ORDER BY hash"))
        unit.bills.close(
            ring, closed, ((tenant, Leaf(at, salt, path_of(tree, at), data)) for at, (tenant, salt, data) in stored)
        )
    header = closed.header
    text = f"{header.day}, {header.leaves} leaves, header {header.hash.hex()}"
    unit.events.save(ring, [EventRun(Fate.DAY_CLOSED, "", 0, 0, [header.hash], [], text)], working_set.now)
    return True


def entries_of(rows: Iterable[ChargeRow], paths: bool) -> Iterator[tuple[str, Iterator[Entry]]]:
    """Yield the entries of each tenant: the first part of an origin that is a path, otherwise the origin.

    A day may have more entries than fit in memory: a file of SQLite sorts them.
    """

    def flat() -> Iterator[tuple[str, int, str, str, str, str]]:
        for row in rows:
            for (book, processor), one in row.charges.items():
                origin = origin_of(book)
                sums = codec.write_json([*one.planned, *one.charged, *one[2:]]).decode()
                tenant = head_of(origin) if paths else origin
                yield tenant, row.block or 0, origin, priority_of(book), processor, sums

    with closing(sqlite3.connect("")) as file:
        file.execute("CREATE TABLE entry (tenant, block, origin, priority, processor, sums)")
        file.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", flat())
        found = file.execute("SELECT * FROM entry ORDER BY tenant, block, origin, priority, processor")
        for tenant, own in groupby(found, itemgetter(0)):
            yield tenant, starmap(_entry, groupby(own, itemgetter(1, 2, 3, 4)))


def _entry(key: tuple[int, str, str, str], rows: Iterable[tuple[Any, ...]]) -> Entry:
    """Return the entry of a block, an origin, a priority and a processor."""
    block, origin, priority, processor = key
    sums = [sum(column) for column in zip(*(codec.read_json(row[-1]) for row in rows))]
    measured, messages, size, attempts, set_aside = sums[4:]
    return {
        "block": block or None, "origin": origin, "priority": priority, "processor": processor, "planned": sums[:2],
        "charged": sums[2:4], "measured": measured, "messages": messages, "bytes": size, "attempts": attempts,
        "set_aside": set_aside,
    }  # fmt: skip


def price_of(config: RingConfig, day: date) -> Mapping[str, Any] | None:
    """Return the tariff of a ring, if it has a price on a day."""
    with suppress(InvalidInput):
        if config.tariff is not None and Tariff.from_json(config.tariff).price(day) is not None:
            return config.tariff
    return None


def read_bill(unit: Unit, session: RingSession, tenant: str, month: date) -> Mapping[str, Any]:
    """Return the bill of a tenant for the closed days of a month."""
    ring, period, (first, stop) = session.ring_id, month.isoformat()[:7], days_of(month)
    days = unit.bills.days(ring, first, stop)
    if not days:
        raise InvalidInput(f"no day of {period} is closed: `{session.cli('ring housekeep')}` closes days that are over")
    number = bytes(unit.bills.days(ring, limit=1)[0].before).hex()
    leaves = unit.bills.leaves(ring, tenant, first, stop)
    return bill_of(number, session.ring, tenant, period, [day.header for day in days], leaves)


def days_of(month: date) -> tuple[int, int]:
    """Return the first day of a month and that of the month after it, since 1970."""
    first = (month.replace(day=1) - EPOCH).days
    return first, first + monthrange(month.year, month.month)[1]
