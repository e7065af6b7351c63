"""Buckets: what they charge over time, with clocks that jump, and how rates are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_mq import Weight
from airflow_mq.engine.rules.budget import FAR, GRAINS, HOUR, Balance, Bucket, Budget, Part, Rate, burst_of, rate_of
from airflow_mq.engine.rules.errors import ConfigRefused

DAY = 86_400_000_000
SECOND = 1_000_000
parts = st.none() | st.builds(
    lambda rate, burst: Part(rate, burst * GRAINS), st.integers(1, 1 << 40), st.integers(1, 1 << 40)
)
budgets = st.builds(Budget, parts, parts).filter(lambda budget: budget != (None, None))
weights = st.builds(Weight, st.integers(0, 1 << 41), st.integers(0, 1 << 41))
#: Times by which the clock moves, back as well.
jumps = st.sampled_from([0, 1, 999, SECOND, 3_600 * SECOND, DAY, 400 * DAY]) | st.integers(0, 1 << 45)
steps = st.one_of(
    st.tuples(st.just("send"), st.lists(weights, min_size=1, max_size=5)),
    st.tuples(st.just("clock"), jumps | jumps.map(lambda jump: -jump)),
    st.tuples(st.just("overrun"), weights),
    st.tuples(st.just("refund"), st.integers(0, 100)),
)


def acme(rate_bytes: Rate | None = None, burst: int | None = None, burst_bytes: int | None = None) -> Budget:
    found = Budget.of(Rate(7_200_000, 86_400), rate_bytes, burst, burst_bytes)
    assert found is not None
    return found


@given(budgets, st.lists(steps, max_size=40))
def test_charge_of_any_window_is_bounded(budget: Budget, script: list[tuple[str, Any]]) -> None:
    now = at = 1 << 50
    bucket = Bucket("acme", budget, now)
    #: After each step: until when it was refilled, all that it charged so far, and of that what it could not refuse.
    charged, overran, longest = [0, 0], [0, 0], [0, 0]
    trail = [(bucket.refilled_to, (0, 0), (0, 0))]
    planned: list[Weight] = []
    for what, value in script:
        if what == "clock":
            now += value
            bucket.refill(now)
        elif what == "overrun":
            bucket.charge(value)
            for part in (0, 1):
                charged[part] += value[part]
                overran[part] += value[part]
        elif what == "refund" and planned:
            weight = planned.pop(value % len(planned))
            bucket.refund(weight)
            for part in (0, 1):
                charged[part] -= weight[part]
        elif what == "send":
            for weight in value[: bucket.covering(value)]:
                bucket.charge(weight)
                planned.append(weight)
                for part in (0, 1):
                    charged[part] += weight[part]
                    longest[part] = max(longest[part], weight[part])
        trail.append((bucket.refilled_to, (charged[0], charged[1]), (overran[0], overran[1])))
        assert bucket.refilled_to >= at
        at = bucket.refilled_to
    for part in (0, 1):
        own = budget[part]
        if own is None:
            continue
        for start in range(len(trail)):
            credit = 0
            for before, after in zip(trail[start:], trail[start + 1 :]):
                # A step of the clock gives the rate, and at most one burst.
                credit += min(own.rate * (after[0] - before[0]), own.burst)
                used = after[1][part] - trail[start][1][part]
                beyond = after[2][part] - trail[start][2][part]
                assert (used - longest[part] - beyond) * GRAINS <= credit + own.burst


@given(budgets, st.lists(weights, min_size=1, max_size=8), st.integers(0, 1 << 42), weights)
def test_covering_takes_messages_one_by_one(budget: Budget, line: list[Weight], elapsed: int, debt: Weight) -> None:
    bucket, single = Bucket("a", budget, 0), Bucket("a", budget, 0)
    for one in (bucket, single):
        one.charge(debt)
        one.refill(elapsed)
    count = 0
    for weight in line:
        if not all(
            part is None or left >= weight[at] * GRAINS or left == part.burst
            for at, (part, left) in enumerate(zip(budget, single.left))
        ):
            break
        single.charge(weight)
        count += 1
    assert bucket.covering(line) == count


@given(budgets, weights, weights, st.lists(st.integers(1, DAY), max_size=30))
def test_wake_time_is_the_first_moment_that_covers(
    budget: Budget, debt: Weight, needed: Weight, refills: list[int]
) -> None:
    bucket = Bucket("a", budget, 0)
    bucket.charge(debt)
    bucket.wait_for(needed)
    if not bucket.wake_at:
        assert bucket.covering([needed])
        return
    wake_at = bucket.wake_at
    assume(wake_at < FAR)
    # Many refills come to the same as one: nothing is rounded.
    at = 0
    for step in refills:
        at += step
        if at < wake_at:
            bucket.refill(at)
            assert not bucket.covering([needed])
    bucket.refill(wake_at - 1)
    assert not bucket.covering([needed])
    bucket.refill(wake_at)
    assert bucket.covering([needed])


@given(budgets, st.lists(st.integers(0, DAY), max_size=50), weights)
def test_refills_lose_nothing(budget: Budget, pieces: list[int], debt: Weight) -> None:
    often, once = Bucket("a", budget, 0), Bucket("a", budget, 0)
    for one in (often, once):
        one.charge(debt)
    for total in [sum(pieces[: count + 1]) for count in range(len(pieces))]:
        often.refill(total)
        often = Bucket("a", budget, total, Balance(*often.balance))
    once.refill(sum(pieces))
    assert often.left == once.left


def test_full_bucket_overdraws_for_one_message() -> None:
    bucket = Bucket("acme", acme(burst=1_000), 0)
    heavy, free = Weight(5_000, 9), Weight(0, 9)
    assert bucket.covering([free, heavy, free, heavy]) == 2
    bucket.charge(free)
    bucket.charge(heavy)
    assert bucket.covering([free]) == 0
    assert bucket.wait_for(free)
    assert bucket.wake_at == 4_000 * 12 * 1_000


def test_exhaustion_is_recorded_once_until_it_is_full_again() -> None:
    bucket = Bucket("acme", acme(burst=10), 1)
    bucket.charge(Weight(10, 0))
    assert bucket.wait_for(Weight(1, 0))
    bucket.refill(bucket.wake_at)
    assert not bucket.wait_for(Weight(1, 0)) and not bucket.wake_at
    bucket.charge(Weight(1, 0))
    assert not bucket.wait_for(Weight(1, 0)) and bucket.wake_at
    bucket.refill(DAY)
    bucket.charge(Weight(10, 0))
    assert bucket.wait_for(Weight(1, 0))


def test_burst_defaults_to_the_rate_of_an_hour() -> None:
    assert acme().time == Part(7_200_000, 7_200_000 * HOUR)
    # Ten bytes a day are less than one byte an hour, and lose nothing.
    assert Budget.of(None, Rate(10, 86_400, 1), None, None) == (None, Part(10, 10 * HOUR))
    assert Budget.of(None, None, 5, None) is None


@pytest.mark.parametrize(
    ("name", "text", "rate", "written"),
    [
        ("rate", "2h/day", Rate(7_200_000, 86_400), "2h/day"),
        ("rate", "30m/hour", Rate(1_800_000, 3_600), "30min/hour"),
        ("rate", "1.5 s / MIN", Rate(1_500, 60), "1.5s/minute"),
        ("rate_bytes", "50GiB/day", Rate(50 << 30, 86_400, 1), "50GiB/day"),
        ("rate_bytes", "1kb/s", Rate(1_000, 1, 1), "1kB/second"),
    ],
)
def test_rates_are_read_and_written(name: str, text: str, rate: Rate, written: str) -> None:
    assert rate_of(name, text) == rate_of(name, rate) == rate_of(name, written) == rate
    assert str(rate) == written


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("rate", "2h", "an amount per second, minute, hour or day, such as 2h/day"),
        ("rate", "2h/week", "per second, minute, hour or day"),
        ("rate", "2/day", "expected a time such as"),
        ("rate", "50GiB/day", "a size is set by rate_bytes"),
        ("rate_bytes", "2h/day", "a time is set by rate"),
        ("rate", "0s/day", "to stop a queue, pause it"),
        ("rate", "1.5ms/day", "in whole units"),
        ("rate", Rate(5, 7), "such as 2h/day"),
        ("rate", Rate(5, 60, 1), "such as 2h/day"),
        ("rate", Rate(1 << 64, 60), "expected a whole number from 1"),
        ("rate", 7, "such as 2h/day"),
        ("burst", "30m/hour", "a burst is an amount, such as 30m"),
        ("burst", "5GiB", "a size is set by burst_bytes"),
        ("burst", 0, "without a burst, one hour's rate applies"),
        ("burst_bytes", True, "expected a whole number from 1"),
    ],
)
def test_invalid_budgets_are_rejected(name: str, value: Any, error: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        (rate_of if name.startswith("rate") else burst_of)(name, value)
    assert error in str(refused.value) and name in str(refused.value)
