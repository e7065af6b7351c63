"""Fairness clock: its figures equal those of a walk over blocks and queues, for any ledger."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from airflow_mq.core.clock import Asks, judge_shares
from airflow_mq.core.config import BLOCK_PARTS
from airflow_mq.core.fairness import Fairness, Promise, judge, rounds_of
from airflow_mq.core.orders import Entry
from airflow_mq.core.weight import Weight

REASONS = ("limit", "spent", "emptied", "yielded", "paused", "in flight", "backoff")


def parts(weight: Weight) -> int:
    return weight.time * BLOCK_PARTS // 1000


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


def same(told: Fairness, plain: Fairness) -> None:
    assert (told.blocks, [one.origin for one in told.origins]) == (plain.blocks, [one.origin for one in plain.origins])
    assert told.jain == pytest.approx(plain.jain, rel=1e-9) if plain.jain is not None else told.jain is None
    for one, other in zip(told.origins, plain.origins):
        for name, value in other._asdict().items():
            if isinstance(value, float):
                assert getattr(one, name) == pytest.approx(value, rel=1e-9, abs=1e-9), (one, other)
            else:
                assert getattr(one, name) == value, (one, other)


@pytest.mark.parametrize("seed", range(400))
def test_the_clock_and_the_plain_way(seed: int) -> None:
    random = Random(seed)
    names = [f"o{number:02}" for number in range(random.choice((1, 2, 5, 12, 30)))]
    pages = a_ledger(random, names)
    promises = {name: Promise(random.randint(1, 4)) for name in names if random.random() < 0.3}
    ready, left = {}, {}
    for name in names:
        if random.random() < 0.7:
            left[name] = inf if random.random() < 0.2 else random.choice((0, 1, 40, random.randint(1, 5_000)))
            if left[name] != inf:
                left[name] = parts(Weight(int(left[name]), 0))
            known = left[name] == inf or random.random() < 0.5
            least = left[name] if known else random.choice((0, left[name] // 3, left[name]))
            ready[name] = Asks(random.randint(0, len(pages)), least, known)
    plain = judge(rounds_of(pages, parts, {name: asks.since for name, asks in ready.items()}), promises, left=left)
    same(judge_shares(pages, parts, ready, promises, left.__getitem__), plain)


def test_only_demands_that_matter_are_read() -> None:
    """A hundred queues wait, of each of which more is known than it could have been promised."""
    pages = [[Entry("loud", granted=Weight(1000, 0), messages=1000, reason="limit")] for _ in range(3)]
    ready = {f"o{number:03}": Asks(0, parts(Weight(100, 0))) for number in range(100)} | {"o999": Asks(0, 1)}
    asked: list[str] = []

    def left(name: str) -> float:
        asked.append(name)
        return inf

    told = judge_shares(pages, parts, ready, {}, left)
    assert asked == ["o999"]
    assert {one.waiting for one in told.origins} == {0, 3}
    assert told.origin("o000").promised == pytest.approx(1 / 102)
