"""Blocks in the plain model: claims, answers and settlement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_mq import Done, Overweight, StackLimitReached, Yield

from .plain import GONE, WAITING, Event, Item, Pair, Plain, Refusal

Outcome = object


@dataclass(eq=False)
class Run:
    """Adjacent claimed messages of a page; closed if no message was found behind them."""

    origin: str
    page: int
    closed: bool
    items: list[tuple[int, Item, str]]
    #: Settings of the origin when the block was planned.
    ordered: bool = True
    most: Pair | None = None


@dataclass(eq=False)
class Held:
    """A block."""

    number: int
    limit: Pair
    deadline: int
    #: Seconds of its lease.
    seconds: float
    runs: list[Run] = field(default_factory=list)
    by_hand: bool = False
    key: str | None = None
    state: str = "planned"
    answers: dict[tuple[str, int, int], Outcome] = field(default_factory=dict)
    #: Weights that the plan took for its messages.
    weights: dict[Item, Pair] = field(default_factory=dict)
    #: Number of other changes since the plan.
    meanwhile: int = 0

    def handed_out(self) -> list[tuple[str, int, int, Item]]:
        return [
            (run.origin, run.page, at, item)
            for run in self.runs for at, item, decision in run.items if decision == "process"
        ]  # fmt: skip

    def answer(self, origin: str, page: int, at: int, outcome: Outcome) -> None:
        """Record the first answer; a final one hides the message at once."""
        self.answers.setdefault((origin, page, at), outcome)
        first = self.answers[origin, page, at]
        for claimed_origin, claimed_page, place, item in self.handed_out():
            if (claimed_origin, claimed_page, place) == (origin, page, at) and not isinstance(
                first, (Yield, Overweight)
            ):
                item.reported = True


def processed(plain: Plain, block: Held, answer: Callable[[bytes], Outcome]) -> list[tuple[Run, int, Item, Outcome]]:
    """Return the messages that a processor is called for, one by one or by queue, and its answers."""
    processed_items: list[tuple[Run, int, Item, Outcome]] = []
    stopped: set[str] = set()
    for run in block.runs:
        for at, item, decision in run.items:
            known = block.answers.get((run.origin, run.page, at))
            if decision != "process" or (run.ordered and run.origin in stopped):
                continue
            outcome = answer(item.payload) if known is None else known
            if known is None:
                processed_items.append((run, at, item, outcome))
            heavy = isinstance(outcome, Overweight) and plain.reasons_under(
                run.most, tuple(outcome.weight), block.limit
            )
            if isinstance(outcome, (Yield, Overweight)) and not heavy:
                stopped.add(run.origin)
    return processed_items


def settle(plain: Plain, block: Held, state: str) -> None:
    """Give each claimed message its outcome; requeue messages without one."""
    if block.state == state:
        return
    if block.state != "planned":
        raise Refusal("TokenRefused")
    block.state, plain.block = state, block.number
    for *_, item in block.handed_out():
        plain.charge(item, planned=block.weights[item])
    if block.by_hand:
        _by_hand(plain, block)
    else:
        stopped: set[str] = set()
        left: set[str] = set()
        for run in block.runs:
            if run.page in plain.book(run.origin).pages:
                for at, item, decision in run.items:
                    _settle(plain, block, run, at, item, decision, stopped, left)
                plain.close_page(plain.book(run.origin), run.page, for_good=run.closed)
    for run in block.runs:
        for _, item, _ in run.items:
            item.held, item.reported = None, False
    plain.block = None


def _settle(
    plain: Plain, block: Held, run: Run, at: int, item: Item, decision: str, stopped: set[str], left: set[str]
) -> None:  # fmt: skip
    halted = run.ordered and run.origin in stopped
    if item.state != WAITING:
        return
    if decision != "process":
        if not halted and decision == "expired":
            plain.gone("Expired", run.page, at, item)
        elif not halted:
            plain.aside("SetAside", run.page, at, item, item.reasons, item.weighed)
        return
    outcome = block.answers.get((run.origin, run.page, at))
    if outcome is None or isinstance(outcome, Yield):
        if outcome is None and (halted or (run.ordered and run.origin in left)):
            return
        left.add(run.origin)
        plain.charge_attempt(item, block.weights[item], finished=False)
        if plain.gives_back(run.page, at, item):
            stopped.add(run.origin)
    elif isinstance(outcome, Overweight):
        reasons = plain.reasons(run.origin, tuple(outcome.weight), block.limit)
        if reasons:
            plain.aside("SetAside", run.page, at, item, reasons, tuple(outcome.weight))
        else:
            item.declared = tuple(outcome.weight)
            plain.emit("Returned", run.origin, run.page, at)
            stopped.add(run.origin)
    else:
        plain.charge_attempt(item, block.weights[item], used_by(outcome), finished=True)
        plain.gone("Processed" if isinstance(outcome, Done) else "ProcessingFailed", run.page, at, item)
        send(plain, outcome)


def used_by(outcome: Outcome) -> Pair:
    """Return the weight that an outcome reports."""
    return tuple(getattr(outcome, "used", None) or (0, 0))  # type: ignore[return-value]


def send(plain: Plain, outcome: Outcome) -> None:
    """Enqueue the messages of an outcome."""
    for origin, payload in outcome.enqueue if isinstance(outcome, Done) else ():
        fresh = Item(payload, origin)
        plain.all.append(fresh)
        plain.append(fresh)


def _by_hand(plain: Plain, block: Held) -> None:
    (run,) = block.runs
    ((at, item, _),) = run.items
    outcome = block.answers.get((run.origin, run.page, at))
    if item.state == GONE or outcome is None or isinstance(outcome, (Yield, Overweight)):
        return
    if isinstance(outcome, StackLimitReached):
        plain.events.append(Event("ProcessingFailed", run.origin, run.page, at))
        return
    plain.charge_attempt(item, block.weights[item], used_by(outcome), finished=True)
    plain.gone("Processed" if isinstance(outcome, Done) else "ProcessingFailed", run.page, at, item)
    plain.emit("Executed", run.origin, run.page, at)
    plain.take_away(item, run.page)
    send(plain, outcome)
