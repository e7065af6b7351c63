"""Usage: sums of charges by period and origin, path, processor or DAG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from ....bills import EPOCH
from ....tariff import Tariff
from ...rules.charging import BY, DAY, PER, Charge
from ...rules.errors import InvalidInput
from ...rules.groups import SEPARATOR, head_of, is_below
from ...rules.priority import origin_of
from ...rules.weight import Weight
from ...store.bills import date_of
from ...store.charges import Sums
from ...store.unit import Unit
from ..servers import dag_of


@dataclass(frozen=True)
class Usage:
    """Sums of the charges of one period under one name."""

    #: A day or a month of UTC: `2026-11-28` or `2026-11`.
    period: str
    name: str
    #: Weight that plans and visits took for messages, and the weight that was charged in the end.
    planned: Weight
    charged: Weight
    #: Measured seconds of the calls of processors, to milliseconds.
    measured: float
    #: Messages that an outcome finished, and the bytes of their payloads.
    messages: int
    size: int
    attempts: int
    set_aside: int
    #: What the charged weight costs by the tariff, if one is given, and its currency.
    cost: Decimal | None = None
    currency: str = ""


def usage_of(
    unit: Unit, ring: int, by: str, per: str, *, since: date | None, until: date | None, of: str | None,
    tariff: Tariff | None, most: int | None,
) -> list[Usage]:  # fmt: skip
    """Return the usage of a ring, in the order of periods and names; see `Inspect.usage`."""
    for value, known, what in ((by, BY, "by"), (per, PER, "per")):
        if value not in known:
            raise InvalidInput(f"invalid {what} {value!r:.80}: expected one of {', '.join(known)}")
    sums: dict[tuple[str, str], Charge] = {}
    costs: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for day, charges in _days(unit, ring, since, until):
        period = day.isoformat()[: PER[per]]
        for (book, processor, server), charge in charges.items():
            origin = origin_of(book)
            if of is not None and not is_below(origin, of):
                continue
            key = period, _name(by, of, origin, processor, server)
            sums[key] = sums[key].plus(charge) if key in sums else charge
            if tariff is not None:
                costs[key] += tariff.cost(day, charge.charged)
        if most is not None and len(sums) > most:
            raise InvalidInput(f"more than {most:,} rows: choose a shorter time, one origin or path, or months")
    return [
        Usage(
            *key, charge.planned, charge.charged, round(charge.measured / 1_000_000, 3), *charge[3:],
            None if tariff is None else tariff.rounded(costs[key]), "" if tariff is None else tariff.currency,
        )
        for key, charge in sorted(sums.items())
    ]  # fmt: skip


def _name(by: str, of: str | None, origin: str, processor: str, server: str) -> str:
    """Return the name under which a charge is summed, in a report on an origin or a path, or on all."""
    if by == "path":
        below = "" if of is None else of + SEPARATOR
        return below + head_of(origin[len(below) :]) if origin != of else origin
    return {"origin": origin, "processor": processor, "dag": dag_of(server) or server}[by]


def _days(unit: Unit, ring: int, since: date | None, until: date | None) -> Iterator[tuple[date, Sums]]:
    """Yield sums of closed days, and the rows that are in none of them yet, from a day to before another."""
    first = 0 if since is None else (since - EPOCH).days
    stop = (date.max if until is None else until) - EPOCH
    for day, sums in unit.charges.days(ring, first, stop.days):
        yield date_of(day), sums
    for row in unit.charges.each(ring, unit.charges.rolled_up(ring)):
        if first <= row.at // DAY < stop.days:
            yield date_of(row.at // DAY), row.sums
