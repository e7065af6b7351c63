"""Bills of a ring: closing days, and reading what a tenant was charged on closed ones."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from itertools import takewhile
from typing import Any

from ...bills import EPOCH, SALT_BYTES, Leaf, bill_of, canonical, content_of, leaf_hash, path_of, rows_of
from ...tariff import Tariff
from ..rules.charging import DAY, Charge, add_charges
from ..rules.config import RingConfig
from ..rules.errors import InvalidInput
from ..rules.events import EventRun, Fate
from ..rules.groups import head_of
from ..rules.priority import origin_of, priority_of
from ..rules.weight import ZERO
from ..store.bills import BillDay, date_of
from ..store.charges import ChargeRow
from ..store.unit import Unit
from ..store.working_set import StoredSet

#: Charges of a tenant by block (0 without one), origin, priority and processor.
Entries = dict[tuple[int, str, str, str], Charge]


def close_day(unit: Unit, ring: int, name: str, working_set: StoredSet) -> bool:
    """Close the next day that is over, and return whether there was one; requires the ring lock.

    A row belongs to the day of its time, or to the first open one if that day is closed: an end that comes late, or
    a clock that was set back, changes no closed day.
    """
    last, config = unit.bills.last(ring), working_set.config
    if last is None:
        # The number of the store's bills, which the first header follows.
        began = [row.at // DAY for row in unit.charges.after(ring, 0, 1)]
        last = BillDay(began[0] - 1, 0, b"", b"", 0) if began else None
    if last is None or last.day + 1 >= working_set.now // DAY:
        return False
    before = last.header.hash if last.before else secrets.token_bytes(SALT_BYTES)
    number = unit.bills.days(ring, limit=1)[0].before if last.before else before
    day, after = last.day + 1, last.last
    rows = [*takewhile(lambda row: row.at // DAY <= day, unit.charges.each(ring, after))]
    price = price_of(config, date_of(day))
    hashed = []
    for tenant, entries in entries_of(rows, config.paths).items():
        content = content_of(bytes(number).hex(), name, tenant, date_of(day).isoformat(), price, plain(entries))
        salt, data = secrets.token_bytes(SALT_BYTES), canonical(content)
        hashed.append((leaf_hash(salt, data), tenant, salt, data))
    # The order of hashes shows nothing of the other tenants.
    hashed.sort()
    tree = rows_of([one[0] for one in hashed])
    leaves = [
        (tenant, Leaf(place, salt, path_of(tree, place), data)) for place, (_, tenant, salt, data) in enumerate(hashed)
    ]
    closed = BillDay(day, rows[-1].id if rows else after, before, tree[-1][0], len(leaves))
    unit.bills.close(ring, closed, leaves)
    header = closed.header
    text = f"{header.day}, {header.leaves} leaves, header {header.hash.hex()}"
    unit.events.save(ring, [EventRun(Fate.DAY_CLOSED, "", 0, 0, [header.hash], [], text)], working_set.now)
    return True


def entries_of(rows: Iterable[ChargeRow], paths: bool) -> Mapping[str, Entries]:
    """Return charges by tenant: the first part of an origin that is a path, otherwise the origin."""
    found: defaultdict[str, Entries] = defaultdict(dict)
    for row in rows:
        for (book, processor), charge in row.charges.items():
            origin = origin_of(book)
            key = row.block or 0, origin, priority_of(book), processor
            add_charges(found[head_of(origin) if paths else origin], {key: charge})
    return found


def plain(entries: Entries) -> list[dict[str, Any]]:
    """Return the entries of a leaf, in order."""
    return [
        {
            "block": block or None, "origin": origin, "priority": priority, "processor": processor,
            "planned": list(one.planned), "charged": list(one.charged), "measured": one.measured,
            "messages": one.messages, "bytes": one.size, "attempts": one.attempts, "set_aside": one.set_aside,
        }
        for (block, origin, priority, processor), one in sorted(entries.items())
    ]  # fmt: skip


def price_of(config: RingConfig, day: date) -> Mapping[str, Any] | None:
    """Return the tariff of a ring, if it has a price on a day."""
    with suppress(InvalidInput):
        if config.tariff is not None and Tariff.from_json(config.tariff).cost(day, ZERO) == 0:
            return config.tariff
    return None


def read_bill(unit: Unit, ring: int, name: str, tenant: str, month: date) -> Mapping[str, Any]:
    """Return the bill of a tenant for the closed days of a month."""
    first, stop = days_of(month)
    days = unit.bills.days(ring, first, stop)
    if not days:
        raise InvalidInput(f"no day of {month:%Y-%m} is closed: `airflow-mq ring housekeep` closes days that are over")
    number = bytes(unit.bills.days(ring, limit=1)[0].before).hex()
    leaves = unit.bills.leaves(ring, tenant, first, stop)
    return bill_of(number, name, tenant, f"{month:%Y-%m}", [day.header for day in days], leaves)


def days_of(month: date) -> tuple[int, int]:
    """Return the first day of a month and that of the month after it, since 1970."""
    after = date(month.year + month.month // 12, month.month % 12 + 1, 1)
    return (month.replace(day=1) - EPOCH).days, (after - EPOCH).days
