"""`report simulate`: the same arrivals under several policies, side by side."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.config import ORDERS
from ..core.weight import Weight
from ..words import percent
from .command import command, option
from .errors import UsageError
from .output import Columns
from .serialisation import picked, record
from .session import Session
from .values import count, positive, setting, weight, words

if TYPE_CHECKING:
    from ..simulating import Policy, Scenario, Simulated, SimulatedOrigin

#: So many origins are listed, unless all are asked for.
LISTED = 30


def policy(text: str) -> Policy:
    """Read a name and terms, quoted as in a shell: `order=…`, `limit=TIME/SIZE`, `share.ORIGIN=N`, `setting=value`."""
    from .. import simulating
    from ..core.errors import InvalidInput

    try:
        terms = shlex.split(words(text))
    except ValueError as error:
        raise ArgumentTypeError(
            f"invalid policy {text!r} ({error}): expected NAME TERM..., quoted like a shell's words"
        ) from None
    name = terms.pop(0) if terms and "=" not in terms[0] else text
    shares: dict[str, int] = {}
    settings: dict[str, object] = {}
    limit: Weight | None = None
    order: str | None = None
    for term in terms:
        what, _, value = term.partition("=")
        if what.startswith("share."):
            shares[what.removeprefix("share.")] = positive(value)
        elif what == "limit":
            limit = weight(value)
        elif what == "order":
            order = value
        else:
            settings.update([setting(term)])
    try:
        return simulating.Policy(name, order, limit, shares, settings)
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


@command(
    option("scenario SCENARIO", "a file in TOML, JSON, or JSON lines", words, nargs="?"),
    option("--recorded N", "simulate what arrived before the latest N blocks of the ledger, and what waits", positive),
    option("--order", "under this order; may be repeated", action="append", choices=ORDERS),
    option(
        "--policy 'NAME TERM…'",
        "under a policy of terms: order=…, limit=TIME/SIZE, share.ORIGIN=N, or a ring setting in JSON; may be repeated",
        policy,
        action="append",
    ),
    option("--limit TIME/SIZE", "the limit of a block, if a policy has none", weight),
    option("--blocks N", "run N blocks (default: those of the scenario)", positive),
    option("--seed N", "use another seed than the scenario's, for a ring that shuffles", count),
    option("--svg PATH", "draw the result to this file", words),
    option("--save PATH", "write the arrivals as JSON lines, to simulate them again", words),
    option("--all", "list every origin"),
    example="$ report simulate scenario.toml --order deficit --order rotation --svg out.svg\n"
    "$ report simulate --recorded 50 --policy 'as-is' --policy 'acme-first share.acme=3 limit=60000/1000000'",
)
def simulate(session: Session, args: Namespace) -> None:
    """Simulate the same arrivals under several policies: waits and shares of each origin.

    Runs the code that plans real blocks. Every message succeeds and uses what it was weighed at. Writes only the named
    files. docs/fairness.md describes scenarios.
    """
    from .. import simulating

    scenario = _scenario(session, args)
    if args.save:
        simulating.write_scenario(scenario, args.save)
    policies = _policies(args, scenario)
    with session.out.progress("simulating") as tell:
        found = simulating.simulate(scenario, policies, tell)
    if args.svg:
        _write(args.svg, simulating.draw(scenario, found))
    if session.out.as_json:
        session.out.value(_plain(scenario, found))
        return
    if not scenario.messages:
        session.out.remark("nothing arrived before these blocks; each block writes a page of the ledger")
        return
    session.out.remark(
        f"{scenario.name}: {scenario.messages:,} messages of {len(found[0].origins):,} origins "
        f"over {scenario.blocks:,} blocks"
    )
    session.out.items(found, _TOTALS, "")
    listed = _listed(found, None if args.all else LISTED)
    session.out.line("")
    session.out.table(_columns(found), [_row(origin, found) for origin in listed])
    if len(listed) < len(found[0].origins):
        session.out.remark(f"these waited longest; --all lists all {len(found[0].origins):,}")
    for path in filter(None, (args.svg, args.save)):
        session.out.remark(f"written: {path}")


def _scenario(session: Session, args: Namespace) -> Scenario:
    from .. import simulating

    if (args.scenario is None) == (not args.recorded):
        raise UsageError("specify a scenario's file, or --recorded N for what arrived at the queue; not both")
    if args.scenario is not None:
        scenario = simulating.read_scenario(args.scenario)
        if not scenario.messages:
            raise UsageError(f"no origin sends anything in {args.scenario!r}: add an [[origin]] with a rate or a burst")
    else:
        with session.queue() as queue:
            scenario = simulating.record(queue, args.recorded)
    if args.blocks:
        scenario = replace(scenario, blocks=args.blocks)
    return scenario if args.seed is None else replace(scenario, seed=args.seed)


def _policies(args: Namespace, scenario: Scenario) -> list[Policy]:
    from .. import simulating

    found = [simulating.Policy(order, order) for order in args.order or ()] + list(args.policy or ())
    chosen = found or list(scenario.policies) or [simulating.Policy(scenario.ring.order)]
    if args.limit is None:
        return chosen
    return [one if one.limit is not None else replace(one, limit=args.limit) for one in chosen]


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path!r} cannot be written: {error}") from None


_TOTALS: Columns = (
    ("policy", "policy.name"),
    "order",
    "limit>",
    "done>",
    "left>",
    ("set aside>", lambda one: sum(each.set_aside for each in one.origins)),
    ("mean wait>", lambda one: f"{one.mean_wait:.2f}"),
    "longest wait>",
    ("Jain's index>", lambda one: None if one.fairness.jain is None else f"{one.fairness.jain:.3f}"),
    ("share error>", lambda one: percent(one.fairness.most_error)),
    ("full>", lambda one: percent(one.filled)),
)


def _listed(found: Sequence[Simulated], most: int | None) -> list[SimulatedOrigin]:
    everybody = list(found[0].origins)
    if most is None or len(everybody) <= most:
        return everybody
    longest: dict[str, int] = {}
    for fared in (fared for one in found for fared in one.origins):
        longest[fared.name] = max(longest.get(fared.name, 0), fared.longest_wait)
    chosen = {fared.name for fared in sorted(everybody, key=lambda fared: -longest[fared.name])[:most]}
    return [fared for fared in everybody if fared.name in chosen]


def _columns(found: Sequence[Simulated]) -> list[str]:
    each = [f"{one.policy.name}: {what}>" for one in found for what in ("share", "promised", "longest wait", "left")]
    return ["origin", "arrived>", *each]


def _row(listed: SimulatedOrigin, found: Sequence[Simulated]) -> list[object]:
    row: list[object] = [listed.name, listed.arrived]
    for one in found:
        whose = listed.origin, listed.priority
        fair, fared = one.fairness.origin(*whose), one.origin(*whose)
        row += [percent(fair.received), percent(fair.promised), fared.longest_wait, fared.left]
    return row


def _plain(scenario: Scenario, found: Sequence[Simulated]) -> dict[str, object]:
    policies = [_plain_policy(one) for one in found]
    return {"scenario": scenario.name, **picked(scenario, "messages blocks seed"), "policies": policies}


def _plain_policy(one: Simulated) -> dict[str, object]:
    return {
        "policy": one.policy.name,
        **picked(one, "order limit done left mean_wait longest_wait filled"),
        "fairness": record(one.fairness, "longest_wait", "most_late", "most_error"),
        "origins": one.origins,
        "blocks": [{"block": each.number, **picked(each, "messages planned")} for each in one.blocks],
    }
