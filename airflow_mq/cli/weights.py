"""Predicted and measured weights, as `report weights` and `ring fit-weigher` show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.rules.weigher import LinearWeigher
from .command import option
from .output import Columns
from .serialisation import picked
from .session import Session
from .values import words

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.queue.blocks.measures import Fit

#: The largest drift without a warning.
DRIFT = 0.25
WHICH = (
    option("--processor NAME", "only what this processor used", words),
    option("--origin ORIGIN", "only what this origin used", words),
)
NOTHING = "nothing was measured yet; a processor reports what it used: Done(used=Weight(time, size))"


@dataclass(frozen=True)
class Measured:
    """A fit beside the ring's weigher."""

    fit: Fit
    drift: float | None


def read_fits(queue: MessageQueue, processor: str | None, origin: str | None) -> tuple[list[Measured], Measured | None]:
    """Return the measured weights by processor and origin, and all together."""
    from ..engine.queue.blocks.measures import together

    fits = [fit for fit in queue.inspect.fits(processor) if origin in (None, fit.origin)]
    weigher = queue.config.weigher
    return [_beside(weigher, fit) for fit in fits], _beside(weigher, together(fits)) if fits else None


def _beside(weigher: LinearWeigher, fit: Fit) -> Measured:
    """Return a fit with the excess of used over predicted time: 0.3 is 30 % more, -0.3 less."""
    from ..engine.rules.weigher import PER

    predicted = weigher.base.time * fit.count + weigher.per_byte.time * fit.sums["length"] / PER
    return Measured(fit, fit.sums["time"] / predicted - 1 if predicted else None)


def is_off(one: Measured | None) -> bool:
    return one is not None and one.drift is not None and abs(one.drift) > DRIFT


def warn_of_drift(session: Session, one: Measured | None) -> None:
    if one is not None and one.drift is not None and is_off(one):
        more = "more" if one.drift > 0 else "less"
        session.out.warn(
            f"messages used {abs(one.drift):.0%} {more} time than the ring's weigher predicts; "
            "`airflow-mq ring fit-weigher --store-it` replaces it by the fitted one"
        )


def fit_fields(one: Measured | None) -> dict[str, object] | None:
    if one is None:
        return None
    fit = one.fit
    shown = picked(fit, "processor", origin=fit.origin or None, count=fit.count, weigher=fit.weigher.to_json())
    return {**shown, "drift": one.drift}


def formula(weigher: LinearWeigher) -> str:
    base, per_byte = weigher.base, weigher.per_byte
    return f"{base} + {per_byte.time / 1000:g}/{per_byte.size / 1000:g} per byte"


FITS: Columns = (
    ("processor", lambda one: one.fit.processor or "-"),
    ("origin", lambda one: one.fit.origin or "all"),
    ("messages>", "fit.count"),
    ("fitted weigher", lambda one: formula(one.fit.weigher)),
    ("drift>", lambda one: None if one.drift is None else f"{one.drift:+.0%}"),
)
