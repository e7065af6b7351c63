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


@dataclass(frozen=True)
class Wanted:
    """The usage that a report shows."""

    by: str = "origin"
    per: str = "day"
    #: Days of UTC: from the first one to before the last one; None for no bound.
    since: date | None = None
    until: date | None = None
    #: Only this origin and all below it.
    of: str | None = None
    tariff: Tariff | None = None
    #: Number of rows above which the report is refused.
    most: int | None = None

    def __post_init__(self) -> None:
        for value, known, what in ((self.by, BY, "by"), (self.per, PER, "per")):
            if value not in known:
                raise InvalidInput(f"invalid {what} {value!r:.80}: expected one of {', '.join(known)}")

    def name(self, book: str, processor: str, server: str) -> str | None:
        """Return the name under which a charge is summed; None if the report leaves it out."""
        origin = origin_of(book)
        if self.of is not None and not is_below(origin, self.of):
            return None
        if self.by == "path":
            below = "" if self.of is None else self.of + SEPARATOR
            return below + head_of(origin[len(below) :]) if origin != self.of else origin
        return {"origin": origin, "processor": processor, "dag": dag_of(server) or server}[self.by]


def usage_of(unit: Unit, ring: int, wanted: Wanted) -> list[Usage]:
    """Return the usage of a ring, in the order of periods and names."""
    sums: dict[tuple[str, str], Charge] = {}
    costs: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
    tariff = wanted.tariff
    for day, charges in _days(unit, ring, wanted):
        period = day.isoformat()[: PER[wanted.per]]
        for (book, processor, server), charge in charges.items():
            name = wanted.name(book, processor, server)
            if name is not None:
                known = sums.get((period, name))
                sums[period, name] = charge if known is None else known.plus(charge)
                if tariff is not None:
                    costs[period, name] += tariff.cost(day, charge.charged)
        if wanted.most is not None and len(sums) > wanted.most:
            raise InvalidInput(f"more than {wanted.most:,} rows: choose a shorter time, one origin or path, or months")
    return [
        Usage(
            *key, charge.planned, charge.charged, round(charge.measured / 1_000_000, 3), *charge[3:],
            None if tariff is None else tariff.rounded(costs[key]), "" if tariff is None else tariff.currency,
        )
        for key, charge in sorted(sums.items())
    ]  # fmt: skip


def _days(unit: Unit, ring: int, wanted: Wanted) -> Iterator[tuple[date, Sums]]:
    """Yield sums of closed days, and the rows that are in none of them yet."""
    first = 0 if wanted.since is None else (wanted.since - EPOCH).days
    stop = (date.max if wanted.until is None else wanted.until) - EPOCH
    for day, sums in unit.charges.days(ring, first, stop.days):
        yield date_of(day), sums
    for row in unit.charges.each(ring, unit.charges.rolled_up(ring)):
        if first <= row.at // DAY < stop.days:
            yield date_of(row.at // DAY), row.sums
