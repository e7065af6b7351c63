"""Charges: the weight that queues pay for their messages, by queue and processor.

A plan, or a visit in place, takes the *planned* weight of messages from their queue. Their *charged* weight is known
when they are tried: for each attempt that counts, the weigher's prediction or the reported use, whichever is larger.
Messages that were not tried are charged nothing. `WorkingSet.charge` is the only way to charge a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from typing import NamedTuple, TypeVar

from .config import RingConfig
from .outcome import Done, Outcome, Overweight
from .page import Page
from .weight import ZERO, Weight

K = TypeVar("K")


class Charge(NamedTuple):
    """Sums of what one queue was charged for the messages of one processor."""

    planned: Weight = ZERO
    charged: Weight = ZERO
    #: Measured time of the processor's calls, in microseconds.
    measured: int = 0
    #: Messages that an outcome finished, and the bytes of their payloads.
    messages: int = 0
    size: int = 0
    #: Attempts that count, those that finished a message included.
    attempts: int = 0
    set_aside: int = 0

    def plus(self, other: Charge) -> Charge:
        """Return the sum."""
        planned, charged, *numbers = self
        return Charge(planned.plus(other[0]), charged.plus(other[1]), *map(add, numbers, other[2:]))


NO_CHARGE = Charge()
#: A day of UTC, in microseconds. Sums of closed days are kept.
DAY = 86_400_000_000
#: Names by which a report sums charges, and the lengths of its periods as texts.
BY, PER = ("origin", "path", "processor", "dag"), {"day": 10, "month": 7}


def add_charges(sums: dict[K, Charge], more: Mapping[K, Charge]) -> None:
    """Add charges to sums by the same keys."""
    for key, charge in more.items():
        sums[key] = sums[key].plus(charge) if key in sums else charge


def excess(planned: Weight, charged: Weight) -> Weight:
    """Return what was charged beyond a planned weight."""
    return Weight(max(charged[0] - planned[0], 0), max(charged[1] - planned[1], 0))


def prediction(config: RingConfig, page: Page, item: int, planned: Weight) -> Weight:
    """Return the weigher's prediction of a message: the planned weight, unless its sender declared a lower one."""
    note = page.note(item)
    if note.weight is None:
        return planned
    return planned.at_least(config.weigher.weigh(page.extent(item), note.beside))


def charge_of(
    config: RingConfig, page: Page, item: int, outcome: Outcome, used: Weight, predicted: Weight | None, *,
    trusted: bool
) -> Weight:  # fmt: skip
    """Return the weight that a message is charged for its outcome.

    :param used: its planned weight, or what its processor metered if `predicted` is given
    :param trusted: whether the processor may report less than was predicted
    """
    reported = used if predicted is not None else None
    if isinstance(outcome, Done):
        reported = outcome.used or reported
    elif isinstance(outcome, Overweight):
        # No attempt counts: the processor only asked for more.
        return reported or ZERO
    least = prediction(config, page, item, used if predicted is None else predicted)
    if reported is None:
        return least
    return reported if trusted else reported.at_least(least)


def charge_of_run(config: RingConfig, page: Page, first: int, weights: list[Weight], total: Weight) -> Weight:
    """Return what neighbours that are done are charged, with these planned weights and without reported ones.

    :param total: the sum of the planned weights
    """
    charged = total
    for item, note in page.notes_of(first, first + len(weights)) if page.notes else ():
        if note.weight is not None:
            planned = weights[item - first]
            more = prediction(config, page, item, planned)
            charged = Weight(charged[0] + more[0] - planned[0], charged[1] + more[1] - planned[1])
    return charged
