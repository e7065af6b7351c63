"""Weights, meters, costs and the linear weigher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq.engine.rules.errors import ConfigRefused, InvalidWeight
from airflow_mq.engine.rules.weight import (
    LARGEST,
    ZERO,
    Costs,
    LinearWeigher,
    Meter,
    Weight,
    max_message_weight,
    total_weight,
)

PARTS = st.one_of(st.integers(0, 20), st.integers(0, LARGEST))
WEIGHTS = st.builds(Weight, PARTS, PARTS)


def test_any_part_that_is_larger_exceeds() -> None:
    assert Weight(1, 9).exceeds(Weight(5, 5))
    assert Weight(9, 1).exceeds(Weight(5, 5))
    assert not Weight(5, 5).exceeds(Weight(5, 5))


def test_sums_stop_at_the_largest_number() -> None:
    assert Weight(LARGEST, 1).plus(Weight(1, 1)) == Weight(LARGEST, 2)


def test_differences_are_never_negative() -> None:
    assert Weight(5, 5).minus(Weight(2, 5)) == Weight(3, 0)
    assert Weight(5, 5).minus(Weight(2, 6)) is None


@given(WEIGHTS, WEIGHTS)
def test_what_does_not_exceed_can_be_taken_away(one: Weight, other: Weight) -> None:
    left = one.minus(other)
    assert (left is None) == other.exceeds(one)
    assert left is None or left.plus(other) == one
    assert not one.exceeds(one.at_least(other)) and not other.exceeds(one.at_least(other))


@given(WEIGHTS, st.lists(WEIGHTS))
def test_a_meter_takes_whole_weights_or_nothing(limit: Weight, weights: list[Weight]) -> None:
    meter = Meter(limit)
    for weight in weights:
        before, fits = meter.consumed, meter.fits(weight)
        assert meter.consume(weight) == fits
        assert meter.consumed == (before.plus(weight) if fits else before)
        assert not meter.consumed.exceeds(limit)
        assert meter.left == limit.minus(meter.consumed)


@given(st.lists(WEIGHTS))
def test_totals(weights: list[Weight]) -> None:
    assert total_weight(weights) == (sum(one.time for one in weights), sum(one.size for one in weights))


@pytest.mark.parametrize(
    "value", [1, (1,), (1, 2, 3), (1, -1), (1, 1.0), (1, True), (1, LARGEST + 1), "ab", {"time": 1}, None]
)
def test_what_is_no_weight(value: object) -> None:
    with pytest.raises(InvalidWeight):
        Weight.of(value)


@pytest.mark.parametrize("value", [(1, 2), [1, 2], {"time": 1, "size": 2}, Weight(1, 2)])
def test_what_is_a_weight(value: object) -> None:
    assert Weight.of(value) == Weight(1, 2)


def test_the_overhead_of_one_message() -> None:
    costs = Costs(
        bump_service_head=Weight(1, 0), service_queue_base=Weight(10, 0), ready_ring_unknit=Weight(100, 0),
        service_page_base_completion=Weight(1000, 1), service_page_base_no_completion=Weight(5, 7),
        service_page_item=Weight(0, 50),
    )  # fmt: skip
    assert costs.overhead == Weight(1111, 57)
    assert max_message_weight(Weight(1111, 60), costs) == Weight(0, 3)
    assert max_message_weight(Weight(1110, 60), costs) is None
    assert Costs(**{name: Weight.of(cost) for name, cost in costs.to_json().items()}) == costs


def test_costs_that_are_no_weights_are_refused() -> None:
    with pytest.raises(InvalidWeight):
        Costs(reap_page=(1, "x"))  # type: ignore[arg-type]


def test_weighing_by_length() -> None:
    weigher = LinearWeigher(Weight(2, 0), Weight(500, 1000))
    assert [weigher.weigh(length) for length in (1, 2, 3)] == [Weight(3, 1), Weight(3, 2), Weight(4, 3)]
    assert LinearWeigher.from_json(weigher.to_json()) == weigher
    assert LinearWeigher(Weight(LARGEST, 0), Weight(LARGEST, 0)).weigh(10) == Weight(LARGEST, 0)
    assert ZERO.plus(LinearWeigher().weigh(9)) == Weight(1, 9)


@pytest.mark.parametrize("value", [None, {"base": [1, 2], "other": 1}, [1, 2]])
def test_what_is_no_weigher(value: object) -> None:
    with pytest.raises(ConfigRefused):
        LinearWeigher.from_json(value)


def test_the_part_of_a_limit_that_is_used_most_counts() -> None:
    assert Weight(50, 30).part_of(Weight(100, 40)) == 0.75
    assert Weight(50, 30).part_of(Weight(100, 0)) == 0.5
    assert Weight(50, 30).part_of(Weight(0, 0)) == 0.0
