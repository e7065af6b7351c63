"""Budgets over time of a run, and two invariants: what they are charged is bounded, and no balance loses anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_mq.engine.queue.inspect.queues import budget_states
from airflow_mq.engine.rules.budget import BURSTS, GRAINS, RATES, Balance, Budget, burst_of, rate_of
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.rules.groups import is_below
from airflow_mq.engine.rules.message import header_bytes
from airflow_mq.engine.rules.priority import origin_of
from airflow_mq.engine.store import codec
from airflow_mq.engine.store.working_set.buckets import balance_of

from .messages import Violation

if TYPE_CHECKING:
    from .world import World


class Saved(NamedTuple):
    """A stored balance, and what its budget had been charged."""

    balance: Balance
    used: Sequence[int]
    held: Sequence[int]


@dataclass
class Budgets:
    """Budgets of a ring, and what was charged to them until the last check, in grains of each part."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The last row of charges, and the last event, that was taken in.
    charge: int = -1
    event: int = 0
    #: What ended messages were charged, and of that what no bucket could refuse.
    ended: dict[str, list[int]] = field(default_factory=dict)
    beyond: dict[str, list[int]] = field(default_factory=dict)
    #: The latest time that the clock showed since a bucket was first charged. Its rate counts by this time: a bucket
    #: begins with the clock as it is, also if that was set back before.
    latest: dict[str, int] = field(default_factory=dict)
    #: The least of all checks: what was charged, without what could not be refused and what the rate gave.
    least: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Stored balances at the last check, with what was charged until then.
    saved: dict[str, Saved] = field(default_factory=dict)
    #: What was taken since then, also if it was given back.
    taken: dict[str, list[int]] = field(default_factory=dict)
    #: The heaviest message: actors send some of 25 milliseconds, and views take heavier ones than blocks.
    heaviest: list[int] = field(default_factory=lambda: [25, 100])

    def budget(self, path: str) -> Budget:
        """Return the budget of a path."""
        plain = {name: (rate_of if name.startswith("rate") else burst_of)(name, value)
                 for name, value in self.settings[path].items()}  # fmt: skip
        found = Budget.of(*map(plain.get, (*RATES, *BURSTS)))
        assert found is not None
        return found


def check_budgets(world: World) -> None:
    """Check that a budget is charged at most rate · t + burst + one message in any window, but for overruns.

    Plans and visits take the planned weight of messages; ends correct it to what these were charged. Both are read from
    claims and charges.
    """
    budgets = world.budgets
    if not budgets.settings:
        return
    with world.scheduler.checking(), world.observer.store.reading() as unit:
        rows = unit.connection.execute(  # type: ignore[attr-defined]
            f"SELECT id, data FROM {world.observer.store.prefix}charge WHERE ring = {world.observer.session.ring_id} "
            f"AND id > {budgets.charge} ORDER BY id"
        ).fetchall()
        claims = unit.blocks.in_flight(world.observer.session.ring_id)
        states = budget_states(unit, world.observer.session.stored_working_set(unit), None)
        balances = {
            row.path: balance_of(row)
            for row in unit.origins.buckets(world.observer.session.ring_id, list(budgets.settings))
        }
    for id_, data in rows:
        budgets.charge = id_
        for (book, _), charge in codec.unpack_charges(bytes(data)).items():
            # Where some messages were not tried, the sums hide what others used beyond their planned weight.
            pairs = list(zip(charge.planned, charge.charged))
            if charge.attempts == 1:
                # A view took one message and ended it between two checks, so that no check saw its claim.
                budgets.heaviest = [max(most, min(pair)) for most, pair in zip(budgets.heaviest, pairs)]
            over = [charged if charged < planned else charged - planned for planned, charged in pairs]
            for path in _paths(budgets, world, book):
                _add(budgets.ended, path, charge.charged)
                _add(budgets.beyond, path, over)
                _add(budgets.taken, path, list(map(max, charge.planned, charge.charged)))
    for event in world.observer.inspect.events(after=budgets.event):
        budgets.event = event.seq
        if event.fate is Fate.EXECUTED and event.weight is not None:
            # A message that a person executes is charged, also if the balance does not cover it.
            for path in _paths(budgets, world, event.origin):
                _add(budgets.beyond, path, event.weight)
    longest = max((len(sent.payload) for sent in world.messages.by_id.values()), default=0)
    beside = max((header_bytes(one) for options in world.messages.headers.values() for one in options), default=0)
    budgets.heaviest[1] = max(budgets.heaviest[1], longest + beside)
    #: What live claims took, with those of persons and without.
    held_in_all: dict[str, list[int]] = {}
    held: dict[str, list[int]] = {}
    for row in claims:
        if row.claim.messages == 1:
            budgets.heaviest = list(map(max, budgets.heaviest, row.claim.planned))
        for path in _paths(budgets, world, row.origin):
            _add(held_in_all, path, row.claim.planned)
            if not row.by_hand:
                _add(held, path, row.claim.planned)
    world.met["exhausted budgets"] += sum(state.wakes_at is not None for state in states)
    # An end that is applied in parts charges messages whose claim is still there.
    is_exact = not any(row.is_ending for row in claims)
    for path in budgets.settings:
        _check(world, path, held.get(path, [0, 0]), is_exact)
        if is_exact and path in balances:
            _check_balance(budgets, path, balances[path], held_in_all.get(path, [0, 0]))
    for state in states:
        for left, burst in ((state.left, state.burst), (state.left_bytes, state.burst_bytes)):
            if left is not None and burst is not None and left > burst:
                raise Violation("budget", f"{state.path} has saved {left}, more than its burst of {burst}")


def _check(world: World, path: str, held: Sequence[int], is_exact: bool) -> None:
    """Check the bound of a budget; while its figures are not exact, only note since when it is charged."""
    budgets = world.budgets
    if path not in budgets.ended and not any(held):
        return
    latest = budgets.latest[path] = max(budgets.latest.get(path, world.clock.database), world.clock.database)
    for part, own in enumerate(budgets.budget(path)):
        if own is None:
            continue
        used = budgets.ended.get(path, [0, 0])[part] + held[part] - budgets.beyond.get(path, [0, 0])[part]
        now = used * GRAINS - own.rate * latest
        least = budgets.least.setdefault((path, part), -own.rate * latest)
        allowed = own.burst + budgets.heaviest[part] * GRAINS
        if not is_exact:
            continue
        if now - least > allowed:
            more = (now - least - allowed) / GRAINS
            raise Violation("budget", f"{path} was charged {more:,.3f} more than its rate, burst and one message allow")
        budgets.least[path, part] = min(least, now)


def _check_balance(budgets: Budgets, path: str, balance: Balance, held: Sequence[int]) -> None:
    """Check that a balance has lost nothing since the last check but what was charged, and what its burst cut off."""
    used, budget = budgets.ended.get(path, [0, 0]), budgets.budget(path)
    full = Balance((None, None), balance.refilled_to)
    before = budgets.saved.get(path, Saved(full, [0, 0], [0, 0]))
    taken = budgets.taken.pop(path, [0, 0])
    budgets.saved[path] = Saved(balance, used, held)
    for at, (part, left, had) in enumerate(zip(budget, balance.left, before.balance.left)):
        if part is None or left is None:
            continue
        had = part.burst if had is None else had
        refill = part.rate * (balance.refilled_to - before.balance.refilled_to)
        net = used[at] + held[at] - before.used[at] - before.held[at]
        gross = taken[at] + max(held[at] - before.held[at], 0)
        least = min(part.burst - gross * GRAINS, had + refill - net * GRAINS)
        if left < least:
            raise Violation("budget", f"{path} has {left / GRAINS:,.3f}, and had to keep {least / GRAINS:,.3f}")


def _paths(budgets: Budgets, world: World, book: str) -> list[str]:
    """Return the budgets that pay for messages of a book."""
    origin, paths = origin_of(book), world.observer.config.paths
    return [path for path in budgets.settings if (is_below(origin, path) if paths else origin == path)]


def _add(sums: dict[str, list[int]], path: str, weight: Sequence[int]) -> None:
    before = sums.get(path, [0, 0])
    sums[path] = [before[0] + weight[0], before[1] + weight[1]]
