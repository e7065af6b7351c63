"""`admin`: what is rarely needed: decisions about whole queues and pages, measurements, and repair."""

from __future__ import annotations

import json
import signal
import sys
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

from ..engine.rules.characters import listed
from ..engine.rules.priority import told
from ..engine.rules.weight import PER, LinearWeigher
from ..sheets import Columns
from ..words import many, percent
from .arguments import ORIGIN, PRIORITY, count, positive, why, words
from .command import Group, command, option
from .near import meant, naming_near
from .serialisation import formula, picked, record
from .session import Session, at_sigterm

if TYPE_CHECKING:
    from ..engine.queue.blocks.measures import Fit

#: The largest drift without a warning.
MOST_DRIFT = 0.25
#: The units of a ring's times, and their number in a millisecond.
_UNITS = {"ms": 1, "us": 1000}
_NOTHING = "nothing was measured yet; a processor reports what it used: Done(used=Weight(time, size))"


@command(ORIGIN, name="set-aside-queue", example="$ admin set-aside-queue acme")
def set_aside_queue(session: Session, args: Namespace) -> None:
    """Set aside all waiting messages of a queue.

    Nothing is deleted: the messages stay until they are executed or discarded.
    """
    with session.queue() as queue:
        left = queue.sweep_queue(args.origin)
        near = "" if left else meant(queue, args.origin)
    session.out.answer(
        {"origin": args.origin, "set_aside": left},
        f"{many(left, 'message')} of {args.origin} set aside; see "
        f"`{queue.session.cli('set-aside list --origin=', args.origin)}`"
        if left
        else f"{args.origin} has no waiting messages{near}",
    )


@command(
    ORIGIN,
    option("page PAGE", "the number of the page", count),
    PRIORITY,
    why(),
    example="$ admin remove-page acme 17",
)
def remove_page(session: Session, args: Namespace) -> None:
    """Remove an old page, with the set-aside messages on it.

    Rejected (exit code 3) while the page is needed.
    """
    with session.queue() as queue, naming_near(queue, [args.origin]):
        queue.reap_page(args.origin, args.page, args.why, priority=args.priority)
    session.out.answer({"origin": args.origin, "page": args.page}, f"removed page {args.page} of {args.origin}")


@command(ORIGIN, PRIORITY, example="$ admin service-next acme")
def service_next(session: Session, args: Namespace) -> bool:
    """Service a queue next.

    Exit code 1 if the queue has nothing ready, or waits for its own budget.
    """
    with session.queue() as queue:
        is_next = bool(queue.admin.force_set_head(args.origin, priority=args.priority))
        near = "" if is_next else meant(queue, args.origin)
    session.out.answer(
        {"origin": args.origin, "is_next": is_next},
        f"{args.origin} is next" if is_next else f"{args.origin} cannot be next: nothing ready, or no budget{near}",
    )
    return is_next


@command(
    option("--processor NAME", "only what this processor used", words),
    option("--origin ORIGIN", "only what this origin used", words),
    option("--apply", "store the fitted weigher in the ring"),
    example="$ admin fit-weigher\n$ admin fit-weigher --apply",
)
def fit_weigher(session: Session, args: Namespace) -> bool:
    """Fit a weigher to measured weights, and compare it with the ring's.

    Exit code 1 if nothing was measured yet, or if the measured times and the ring's weigher are more than 25 % apart
    and the fitted weigher is not stored.
    """
    from ..engine.queue.blocks.measures import together

    with session.queue() as queue:
        weigher = queue.config.weigher
        fits = [fit for fit in queue.inspect.fits(args.processor) if args.origin in (None, fit.origin)]
        whole = together(fits) if fits else None
        applied = whole is not None and args.apply
        if whole is not None and args.apply:
            queue.admin.change_ring(weigher=whole.weigher)
    found = {"fits": [_fit_fields(one, weigher) for one in fits], "together": whole and _fit_fields(whole, weigher)}
    json_value = {"weigher": weigher.to_json(), **found, "applied": applied}
    session.out.fields({"the ring's weigher": formula(weigher)}, json_value)
    columns: Columns = (
        ("processor", lambda fit: fit.processor or "-"),
        ("origin", lambda fit: fit.origin or "all"),
        ("messages>", "count"),
        ("fitted weigher", lambda fit: formula(fit.weigher)),
        ("drift>", lambda fit: percent(_drift(fit, weigher), "+")),
    )
    if not session.out.as_json:
        session.out.items([*fits, whole] if len(fits) > 1 else fits, columns, _NOTHING)
    if whole is None or applied:
        session.out.remark("stored the fitted weigher in the ring" if applied else "nothing was changed")
        return applied
    drift = _drift(whole, weigher)
    if drift is not None and abs(drift) <= MOST_DRIFT:
        return True
    apart = "messages used time, and the ring's weigher predicts none"
    if drift is not None:
        apart = (
            f"messages used {abs(drift):.0%} {'more' if drift > 0 else 'less'} time than the ring's weigher predicts"
        )
    session.out.warn(f"{apart}; `{queue.session.cli('admin fit-weigher --apply')}` replaces it by the fitted one")
    return False


def _drift(fit: Fit, weigher: LinearWeigher) -> float | None:
    """Return by which part messages used more time than a weigher predicts (0.3 is 30 %); None if it predicts none."""
    predicted = weigher.base.time * fit.count + weigher.per_byte.time * fit.sums["length"] / PER
    return fit.sums["time"] / predicted - 1 if predicted else None if fit.sums["time"] else 0.0


def _fit_fields(fit: Fit, weigher: LinearWeigher) -> dict[str, object]:
    drift = _drift(fit, weigher)
    return picked(fit, "processor count", origin=fit.origin or None, weigher=fit.weigher.to_json(), drift=drift)


@command(
    option("--repeats N", "measure each step N times (default: 9)", positive, default=9),
    option("--unit", "the unit of the ring's times (default: ms)", choices=tuple(_UNITS), default="ms"),
    option("--apply", "store the measured costs in the ring"),
    example="$ admin measure-costs\n$ admin measure-costs --json > costs.json",
)
def measure_costs(session: Session, args: Namespace) -> None:
    """Measure what each step of servicing costs here.

    Creates a ring of its own beside the store (a file in its folder, a schema of its database), times its steps, and
    removes it again; no other ring is touched. Medians are rounded up. Measure on an idle machine; `ring change --file`
    reads what --json prints. Rejected if a block of the ring could not pay for one message with these costs.
    """
    from ..testing import weights

    per_millisecond = _UNITS[args.unit]
    leave = partial(sys.exit, 128 + signal.SIGTERM)
    with session.queue() as queue, at_sigterm(leave), session.out.progress("measuring") as tell:
        found = weights.measure(queue.store.address, args.repeats, tell)
        costs = weights.costs_of(found, per_millisecond)
        # Checked whether it is applied or not: what is printed can be used.
        config = queue.config.changed(costs=costs)
        if args.apply:
            queue.admin.change_ring(costs=costs)
    steps = [record(one, cost=getattr(costs, one.step)) for one in found]
    settings = {"unit": args.unit, "repeats": args.repeats, "applied": args.apply}
    session.out.value({**settings, "steps": steps, "config": {"costs": costs.to_json()}})
    rows = [
        (one.step, getattr(costs, one.step).time, f"{one.median:.4f}", f"{one.low:.4f}", f"{one.high:.4f}", one.how)
        for one in found
    ]
    session.out.table(("step", f"cost, {args.unit}>", "median, ms>", "a quarter below>", "above>", "measured as"), rows)
    session.out.remark(f"as a setting: --set 'costs={json.dumps(costs.to_json())}'")
    session.out.remark("set in the ring" if args.apply else "nothing was changed; --apply sets them in the ring")
    for warning in config.warnings():
        session.out.warn(warning)


@command(option("--apply", "return the stranded messages"), example="$ admin repair\n$ admin repair --apply")
def repair(session: Session, args: Namespace) -> bool:
    """Show stranded messages, or return them to their queues.

    No service would ever reach a stranded message: `check` reports its row as being in no page. A returned message
    joins its queue behind the messages that are in pages already. Exit code 1 if messages stay stranded.
    """
    with session.queue() as queue:
        found = queue.repair(dry_run=not args.apply)
    repairs = [{"book": one.book, "messages": one.messages, "inbox_rows": list(one.rows)} for one in found]
    session.out.value({"applied": args.apply, "repairs": repairs})
    if found:
        session.out.table(
            ("book", "messages", "inbox rows"), [(told(o.book), o.messages, listed(o.rows)) for o in found]
        )
    stranded, cli = many(sum(one.messages for one in found), "stranded message"), queue.session.cli
    if not found:
        session.out.remark(f"nothing to repair in ring {queue.ring}")
    elif args.apply:
        session.out.remark(f"{stranded} returned to their queues; run `{cli('check')}` to confirm")
    else:
        session.out.remark(f"{stranded} found; nothing was changed. To repair: {cli('admin repair --apply')}")
    return args.apply or not found


ADMIN = Group(
    "admin",
    "set aside queues, remove pages, choose the next queue, measure weights and costs, repair",
    (set_aside_queue, remove_page, service_next, fit_weigher, measure_costs, repair),
    example="$ admin set-aside-queue acme\n$ admin fit-weigher",
)
