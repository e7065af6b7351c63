"""Texts of times, sizes and weights: they are exact, and what is printed can be typed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import words
from airflow_mq.engine.rules.config import RingConfig
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidInput, InvalidWeight
from airflow_mq.engine.rules.units import check_seconds, size_text, time_text
from airflow_mq.engine.rules.weight import LARGEST, Weight

PARTS = st.integers(0, LARGEST) | st.builds(
    lambda count, unit: min(count * unit, LARGEST), st.integers(0, 5_000),
    st.sampled_from([100, 1_000, 60_000, 3_600_000, 1 << 10, 1 << 20, 1 << 30]),
)  # fmt: skip


@given(PARTS, PARTS)
def test_every_weight_reads_back_as_it_was_written(time: int, size: int) -> None:
    weight = Weight(time, size)

    assert Weight.of(str(weight)) == Weight.of(weight.typed) == Weight.of(f"{time:,}/{size}") == weight
    assert " " not in weight.typed and "," not in weight.typed


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (1_001, "1.001 s"), (1_500, "1.5 s"), (60_000, "1 min"),
        (90_000, "1.5 min"), (93_000, "93 s"), (754_321, "754.321 s"), (5_400_000, "1.5 h"), (86_400_000 * 7, "7 d"),
    ],
)  # fmt: skip
def test_times(time: int, text: str) -> None:
    assert time_text(time) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (1_024, "1 KiB"), (1_536, "1.5 KiB"), (1_234_567, "1,234,567 B"),
        (1 << 30, "1 GiB"), (10**10, "10 GB"),
    ],
)  # fmt: skip
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    "written",
    [
        "20m/4GiB", "20min/4gib", "1200s/4Gi", "1,200,000/4_294_967_296", "20 min · 4 GiB", ("20m", 4 << 30),
        (timedelta(minutes=20), "4GiB"), {"time": "20m", "size": "4GiB"}, [1_200_000, 4 << 30],
    ],
)  # fmt: skip
def test_ways_to_write_one_weight(written: object) -> None:
    assert Weight.of(written) == Weight(1_200_000, 4 << 30)


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        (Weight(600_000, 1 << 30), "10 min · 1 GiB"), (Weight(754_321, 1_234_567), "13 min · 1.2 MB"),
        (Weight(0, 0), "0 ms · 0 B"), (Weight(50_000_000, 12_345), "14 h · 12.3 kB"),
    ],
)  # fmt: skip
def test_tables_show_weights_exactly_where_that_is_short(weight: Weight, text: str) -> None:
    assert words.weight(weight) == text


def test_a_duration_below_a_millisecond_costs_one() -> None:
    assert Weight.of((timedelta(microseconds=1), 0)) == Weight(1, 0)
    assert Weight.of((timedelta(milliseconds=100), 0)) == Weight(100, 0)


@pytest.mark.parametrize(
    "written",
    [
        "", "20m", "20m/4GiB/1", "20x/1", "1/4XB", "0.5ms/1", "1/0.1", "-1/2", "٣/1", "1e3/1", "nan/1", ("1" * 40, 1),
        ("20m", 1.5), ("5", 1), "1,5h/1", "1/1,5GiB", "12,34/1", "1,,000/1", "1_0/1", (timedelta(days=-1), 1), f"{LARGEST + 1}/0", "1m/1m/", ("1GiB", "1s"),
    ],
)  # fmt: skip
def test_what_is_no_weight(written: object) -> None:
    with pytest.raises(InvalidWeight, match="invalid"):
        Weight.of(written)


def test_durations_of_callers() -> None:
    assert [check_seconds(one, "lease") for one in (90, "90.0s", "90s", "1.5m", timedelta(seconds=90))] == [90.0] * 5
    assert check_seconds("90", "lease", bare=True) == 90.0
    for wrong in ("", "90", "soon", "-1s", "40y", "999999d", -1, True, None, float("nan"), timedelta(days=-1)):
        with pytest.raises(InvalidInput):
            check_seconds(wrong, "lease")


def test_settings_of_a_ring_as_text() -> None:
    config = RingConfig.from_json(
        {"lease": "15m", "keep_events": "7d", "heap_size": "64KiB", "max_message_size": "1MB"}
    )

    assert (config.lease, config.keep_events, config.heap_size, config.max_message_size) == (
        900.0,
        604_800.0,
        65_536,
        10**6,
    )
    assert RingConfig(lease=timedelta(minutes=15)) == RingConfig()  # type: ignore[arg-type]
    for name, value in (
        ("lease", "15x"),
        ("lease", "1ms"),
        ("lease", "900"),
        ("heap_size", "64s"),
        ("max_stale", "64"),
        ("order", "1s"),
    ):
        with pytest.raises(ConfigRefused, match=name):
            RingConfig.from_json({name: value})
