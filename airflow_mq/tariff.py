"""Tariffs: what the two parts of charged weights cost, by day, as exact decimals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from .engine.rules.errors import ConfigRefused, InvalidInput
from .engine.rules.weight import Weight

_EXPECTED = 'expected {"currency": "EUR", "prices": [{"from": "2026-01-01", "time": "0.12", "size": "0.02"}]}'
#: Digits without an exponent: a short text with one is a number of millions of digits.
_AMOUNT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
#: The weight whose parts the prices are for, unless a tariff gives another one.
PER = Weight(3_600_000, 1 << 30)


class Price(NamedTuple):
    """Prices of the two parts of a weight from a day on."""

    since: date
    time: Decimal
    size: Decimal


@dataclass(frozen=True)
class Tariff:
    """Dated prices; the latest one that began on or before a day counts."""

    currency: str
    #: In order of their days.
    prices: Sequence[Price]
    #: What the prices are for: by default one hour and 1 GiB.
    per: Weight = PER
    #: Decimal places to which a bill is rounded: at most 6, so that no cost is written with an exponent.
    places: int = 2

    @classmethod
    def from_json(cls, plain: object) -> Tariff:
        """Return the tariff that a person wrote; a number with decimals is a text, so that it is exact."""
        try:
            return cls._read(**plain)  # type: ignore[arg-type]
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigRefused(f"invalid tariff ({type(error).__name__}): {_EXPECTED}") from None

    @classmethod
    def _read(cls, currency: str, prices: Sequence[Mapping[str, object]], per: object = PER, places: int = 2) -> Tariff:
        if not isinstance(currency, str):
            raise TypeError(currency)
        read = tuple(sorted(map(_price, prices)))
        weight = Weight.of(per)
        days = {price.since for price in read}
        if not (days and len(days) == len(read) and all(weight) and type(places) is int and 0 <= places <= 6):
            raise ValueError(prices)
        return cls(currency, read, weight, places)

    def price(self, day: date) -> Price | None:
        """Return the price on a day; None before the first one."""
        return max((price for price in self.prices if price.since <= day), default=None)

    def cost(self, day: date, charged: Weight) -> Fraction:
        """Return the exact cost of a charged weight of a day."""
        known = self.price(day)
        if known is None:
            raise InvalidInput(f"no price on {day}: the tariff begins on {self.prices[0].since}; add an earlier entry")
        parts = zip(charged, self.per, known[1:])
        return sum((Fraction(price) * part / per for part, per, price in parts), Fraction(0))

    def rounded(self, cost: Fraction) -> Decimal:
        """Return a cost as it is billed; a half is rounded to the even digit."""
        return Decimal(f"{round(cost * 10**self.places)}e-{self.places}")


def _price(row: Mapping[str, object]) -> Price:
    since, given = date.fromisoformat(str(row["from"])), (row.get("time", "0"), row.get("size", "0"))
    amounts = [Decimal(text) for text in given if isinstance(text, str) and _AMOUNT.fullmatch(text)]
    if not set(row) <= {"from", "time", "size"} or len(amounts) < 2 or since.isoformat() != row["from"]:
        raise ValueError(row)
    return Price(since, *amounts)
