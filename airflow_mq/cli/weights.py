"""`report weights`, `ring fit-weigher` and `ring measure-costs`: predicted and measured weights."""

from __future__ import annotations

import json
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.weigher import LinearWeigher
from .command import command, option
from .output import Columns
from .serialisation import picked, record
from .session import Session
from .values import positive, words

if TYPE_CHECKING:
    from ..queue import MessageQueue
    from ..queue.blocks.measures import Fit

#: The units of a ring's times, and their number in a millisecond.
_UNITS = {"ms": 1, "us": 1000}
#: The largest drift without a warning.
DRIFT = 0.25
_WHICH = (
    option("--processor NAME", "only what this processor used", words),
    option("--origin ORIGIN", "only what this origin used", words),
)
_NOTHING = "nothing was measured yet; a processor reports what it used: Done(used=Weight(time, size))"


@dataclass(frozen=True)
class Measured:
    """A fit beside the ring's weigher."""

    fit: Fit
    drift: float | None


def read(queue: MessageQueue, processor: str | None, origin: str | None) -> tuple[list[Measured], Measured | None]:
    """Return the measured weights by processor and origin, and all together."""
    from ..queue.blocks import measures
    from ..store import codec

    sums: dict[str, int] = {}
    found = []
    with queue.store.loose() as unit:
        rows = unit.origins.measures(queue.session.ring_id, processor)
    for whose, its_origin, data in rows:
        if origin is not None and its_origin != origin:
            continue
        plain = codec.read_json(data) if isinstance(data, (str, bytes)) else data
        found.append(Measured(measures.fit(whose, its_origin, plain), drift_of(queue.config.weigher, plain)))
        sums = {name: sums.get(name, 0) + int(plain[name]) for name in plain}
    if not found:
        return [], None
    return found, Measured(measures.fit("", "", sums), drift_of(queue.config.weigher, sums))


def drift_of(weigher: LinearWeigher, sums: Mapping[str, int]) -> float | None:
    """Return the excess of used over predicted time: 0.3 is 30 % more, -0.3 less."""
    from ..core.weigher import PER

    predicted = weigher.base.time * sums["count"] + weigher.per_byte.time * sums["length"] / PER
    return sums["time"] / predicted - 1 if predicted else None


@command(*_WHICH, example="$ report weights")
def weights(session: Session, args: Namespace) -> bool:
    """Compare measured weights with the ring's weigher.

    Exit code 1 if they are more than 25 % apart.
    """
    with session.queue() as queue:
        found, together = read(queue, args.processor, args.origin)
        weigher = queue.config.weigher
    if session.out.as_json:
        fits = [_plain(one) for one in found]
        session.out.value({"weigher": weigher.to_json(), "fits": fits, "together": _plain(together)})
        _warn(session, together)
        return not _is_off(together)
    session.out.fields({"the ring's weigher": _formula(weigher)})
    if together is None:
        session.out.remark(_NOTHING)
        return True
    everything = [*found, together] if len(found) > 1 else found
    session.out.items(everything, _FITS, "")
    _warn(session, together)
    return not _is_off(together)


@command(*_WHICH, option("--store-it", "store the fitted weigher in the ring"), example="$ ring fit-weigher --store-it")
def fit_weigher(session: Session, args: Namespace) -> bool:
    """Fit a weigher to measured weights.

    Exit code 1 if nothing was measured yet.
    """
    with session.queue() as queue:
        _, together = read(queue, args.processor, args.origin)
        if together is not None and args.store_it:
            queue.admin.change_ring(weigher=together.fit.weigher)
    if session.out.as_json:
        session.out.value({"fit": _plain(together), "stored": together is not None and args.store_it})
    if together is None:
        session.out.remark(_NOTHING)
        return False
    session.out.remark(f"fitted to {together.fit.count:,} messages: {_formula(together.fit.weigher)}")
    if args.store_it:
        session.out.remark("stored in the ring")
    else:
        _warn(session, together)
        session.out.remark("nothing was stored; --store-it does")
    return True


@command(
    option("--repeats N", "measure each step N times (default: 9)", positive, default=9),
    option("--unit", "the unit of the ring's times (default: ms)", choices=tuple(_UNITS), default="ms"),
    option("--apply", "store the measured costs in the ring"),
    example="$ ring measure-costs\n$ ring measure-costs --json > costs.json",
)
def measure_costs(session: Session, args: Namespace) -> None:
    """Measure what each step of servicing costs here.

    Creates a ring of its own beside the store (a file in its folder, a schema of its database), times its steps, and
    removes it again; no other ring is touched. Medians are rounded up. Measure on an idle machine; `ring change --file`
    reads what --json prints. Rejected if a block of the ring could not pay for one message with these costs.
    """
    from .. import measuring

    per_millisecond = _UNITS[args.unit]
    with session.queue() as queue, _ended_by_signal(), session.out.progress("measuring") as tell:
        found = measuring.measure(queue.store.address, args.repeats, tell)
        costs = measuring.costs_of(found, per_millisecond)
        # Checked whether it is applied or not: what is printed can be used.
        config = queue.config.changed(costs=costs)
        if args.apply:
            queue.admin.change_ring(costs=costs)
    if session.out.as_json:
        steps = [record(one, cost=getattr(costs, one.step)) for one in found]
        settings = {"unit": args.unit, "repeats": args.repeats, "applied": args.apply}
        session.out.value({**settings, "steps": steps, "config": {"costs": costs.to_json()}})
    else:
        rows = [
            (one.step, getattr(costs, one.step).time, f"{one.median:.4f}", f"{one.low:.4f}", f"{one.high:.4f}", one.how)
            for one in found
        ]
        session.out.table(
            ("step", f"cost, {args.unit}>", "median, ms>", "a quarter below>", "above>", "measured as"), rows
        )
        session.out.remark(f"as a setting: --set 'costs={json.dumps(costs.to_json())}'")
        session.out.remark("set in the ring" if args.apply else "nothing was changed; --apply sets them in the ring")
    for warning in config.warnings():
        session.out.warn(warning)


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Let a polite end clean up as an error does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_off(one: Measured | None) -> bool:
    return one is not None and one.drift is not None and abs(one.drift) > DRIFT


def _warn(session: Session, one: Measured | None) -> None:
    if one is not None and one.drift is not None and _is_off(one):
        more = "more" if one.drift > 0 else "less"
        session.out.warn(
            f"messages used {abs(one.drift):.0%} {more} time than the ring's weigher predicts; "
            "`airflow-mq ring fit-weigher --store-it` replaces it by the fitted one"
        )


def _plain(one: Measured | None) -> dict[str, object] | None:
    if one is None:
        return None
    fit = one.fit
    shown = picked(fit, "processor", origin=fit.origin or None, count=fit.count, weigher=fit.weigher.to_json())
    return {**shown, "drift": one.drift}


def _formula(weigher: LinearWeigher) -> str:
    base, per_byte = weigher.base, weigher.per_byte
    return f"{base} + {per_byte.time / 1000:g}/{per_byte.size / 1000:g} per byte"


_FITS: Columns = (
    ("processor", lambda one: one.fit.processor or "-"),
    ("origin", lambda one: one.fit.origin or "all"),
    ("messages>", "fit.count"),
    ("fitted weigher", lambda one: _formula(one.fit.weigher)),
    ("drift>", lambda one: None if one.drift is None else f"{one.drift:+.0%}"),
)
