"""Figures of fairness: the judge's equal those of a walk over blocks and queues, for any ledger."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.rules.fairness import Asks, Fairness, Promise, Takes, judge
from airflow_mq.engine.rules.groups import names_above
from airflow_mq.engine.rules.orders import Entry
from airflow_mq.engine.rules.weight import Weight
from tests.unit.rules import plain_fairness as plain

#: Not `SKIPS`: a further reason would change what all seeds draw.
REASONS = ("limit", "spent", "most", "emptied", "yielded", "paused", "in flight", "backoff", "budget")
PATHS = ("a", "b", "c", "a/x", "a/y", "b/z", "a/x/1", "a/x/2", "c/q/w")
BOUNDS = (5, 50, 200, 500)
TAKES: tuple[Takes, ...] = (None, None, lambda origin: origin[-1] in "02468xm", lambda origin: origin < "b")


def parts(weight: Weight) -> int:
    return weight.time * BLOCK_PARTS // 1000


def part(time: int) -> int:
    return parts(Weight(time, 0))


def a_ledger(random: Random, names: list[str]) -> list[list[Entry]]:
    pages = []
    for _ in range(random.randint(0, 12)):
        page = []
        for name in random.sample(names, random.randint(0, min(len(names), 5))):
            messages = random.choice((0, 0, 1, 7))
            granted = random.choice((0, 3, random.randint(1, 300))) if messages == 0 else random.randint(1, 300)
            page.append(Entry(name, granted=Weight(granted, 0), messages=messages, reason=random.choice(REASONS)))
        pages.append(page)
    return pages


def some_promises(random: Random, names: list[str], *, bounds: bool) -> dict[str, Promise]:
    """Return settings for some origins and groups. A name of both has no bounds: they would be the group's alone."""
    groups = {group for name in names for group in names_above(name)}
    promises = {}
    for name in sorted(groups.union(names)):
        if random.random() < 0.4:
            bounded = bounds and not (name in groups and name in names)
            least = part(random.choice(BOUNDS)) if bounded and random.random() < 0.5 else 0
            most = part(random.choice(BOUNDS)) if bounded and random.random() < 0.5 else inf
            promises[name] = Promise(random.randint(1, 4), least, most)
    return promises


def same(told: Fairness, plain: Fairness) -> None:
    assert (told.blocks, [one.origin for one in told.origins]) == (plain.blocks, [one.origin for one in plain.origins])
    assert told.jain == pytest.approx(plain.jain, rel=1e-9) if plain.jain is not None else told.jain is None
    for one, other in zip(told.origins, plain.origins):
        for name, value in other._asdict().items():
            if isinstance(value, float):
                assert getattr(one, name) == pytest.approx(value, rel=1e-9, abs=1e-9), (one, other)
            else:
                assert getattr(one, name) == value, (one, other)


@pytest.mark.parametrize("bounds", (False, True), ids=("shares", "bounds"))
@pytest.mark.parametrize("paths", (False, True), ids=("flat", "paths"))
def test_the_judge_and_the_plain_way(*, paths: bool, bounds: bool) -> None:
    for seed in (*range(400), 529, 775, 1766, 2035):  # in the last ones, a part of a demand is missing
        try:
            judge_as_the_plain_way(seed, paths=paths, bounds=bounds)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def judge_as_the_plain_way(seed: int, *, paths: bool, bounds: bool) -> None:
    random = Random(f"{seed} {paths} {bounds}")
    count = random.choice((1, 2, 5, 12, 30))
    names = [f"o{number:02}" for number in range(count)]
    if paths:
        names = sorted({random.choice(PATHS) + random.choice(("", "", f"/m{number}")) for number in range(count)})
    pages = a_ledger(random, names)
    promises = some_promises(random, names, bounds=bounds)
    ready, left = {}, {}
    for name in names:
        if random.random() < 0.7:
            left[name] = inf if random.random() < 0.2 else part(random.choice((0, 1, 40, random.randint(1, 5_000))))
            known = left[name] == inf or random.random() < 0.5
            least = left[name] if known else random.choice((0, left[name] // 3, left[name]))
            ready[name] = Asks(random.randint(0, len(pages)), least, known)
    takes: list[Takes] = [random.choice(TAKES) for _ in pages] if random.random() < 0.3 else []
    if takes:
        pages = [[line for line in page if own is None or own(line.origin)] for page, own in zip(pages, takes)]
    skips: list[set[str]] = []
    for page, own in zip(pages, takes or [None] * len(pages)) if random.random() < 0.3 else ():
        skipped = set(random.sample(names, random.randint(0, min(3, len(names)))))
        skips.append({name for name in skipped if own is None or own(name)} - {line.origin for line in page})
    since = {name: asks.since for name, asks in ready.items()}
    rounds = plain.rounds_of(pages, parts, since, takes, skips)
    told = judge(pages, parts, ready, promises, left.__getitem__, paths=paths, takes=takes, skips=skips)
    groups = {group for name in plain.lines_of(pages, skips).keys() | ready.keys() for group in names_above(name)}
    same(told, plain.judge(rounds, promises, left=left, paths=paths, groups=groups))


def test_only_demands_that_matter_are_read() -> None:
    """A hundred queues wait, of each of which more is known than it could have been promised."""
    pages = [[Entry("loud", granted=Weight(1000, 0), messages=1000, reason="limit")] for _ in range(3)]
    ready = {f"o{number:03}": Asks(0, part(100)) for number in range(100)} | {"o999": Asks(0, 1)}
    asked: list[str] = []

    def left(name: str) -> float:
        asked.append(name)
        return inf

    told = judge(pages, parts, ready, {}, left)
    assert asked == ["o999"]
    assert {one.waiting for one in told.origins} == {0, 3}
    assert told.origin("o000").promised == pytest.approx(1 / 102)
