"""Bounds of message weights, and the details of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import RingConfig, Weight
from airflow_mq.engine.rules.events import Event, EventRun, Fate, decided, with_arrival, with_untried
from airflow_mq.engine.rules.judging import REASONS, Bounds, bounds_of, in_words
from airflow_mq.engine.rules.weight import LARGEST, UNLIMITED

FULL = Weight(100, 1_000)


@pytest.mark.parametrize(
    ("bounds", "weight", "length", "now", "reason", "limit"),
    [
        (Bounds(FULL), (100, 1_000), 9, False, None, None),
        (Bounds(FULL), (101, 1), 9, False, "overweight", FULL),
        (Bounds(FULL), (101, 1), 9, True, None, None),
        (Bounds(FULL, Weight(50, 2_000)), (51, 1), 9, True, "most", Weight(50, 1_000)),
        (Bounds(FULL, Weight(50, 2_000)), (101, 1), 9, True, "overweight", Weight(50, 1_000)),
        (Bounds(FULL, None, Weight(10, 100)), (11, 1), 9, True, "fraction", Weight(10, 100)),
        (Bounds(FULL, None, Weight(10, 100)), (101, 1), 9, True, "fraction", Weight(10, 100)),
        (Bounds(FULL, Weight(20, 20), Weight(10, 100)), (1, 21), 9, True, "most", Weight(20, 20)),
        (Bounds(FULL, size=8), (1, 1), 9, True, "size", Weight(0, 8)),
        (Bounds(FULL, size=9), (1, 1), 9, True, None, None),
        (Bounds(), (LARGEST, LARGEST), 1 << 30, False, None, None),
    ],
)
def test_the_limit_that_is_exceeded(
    bounds: Bounds, weight: tuple[int, int], length: int, now: bool, reason: str | None, limit: Weight | None
) -> None:
    found = bounds.exceeded(Weight(*weight), length, fits_now=now)
    assert (found.reason, found.limit) == (reason, limit) if found else reason is None


@given(
    st.floats(min_value=1e-9, max_value=1, allow_nan=False), st.integers(0, LARGEST), st.integers(0, LARGEST),
    st.none() | st.tuples(st.integers(0, LARGEST), st.integers(0, LARGEST)),
)  # fmt: skip
def test_the_bar_and_the_limit_are_the_least(share: float, time: int, size: int, most: tuple[int, int] | None) -> None:
    bounds = bounds_of(RingConfig(service_weight=None, most_of_limit=share), Weight(time, size)).of(
        Weight(*most) if most else None
    )
    assert bounds.fraction is not None and not bounds.fraction.exceeds(bounds.full)
    bar = bounds.bar
    assert bar is not None and not bar.exceeds(bounds.fraction) and not bounds.limit.exceeds(bar)
    assert bounds.exceeded(bounds.limit) is None
    if share == 1:
        assert bounds.fraction == bounds.full


def test_nothing_is_judged_by_what_is_not_set() -> None:
    assert bounds_of(RingConfig(service_weight=None), FULL) == Bounds(FULL)
    assert bounds_of(RingConfig(service_weight=Weight(9, 9)), FULL) == Bounds(Weight(9, 9))
    assert bounds_of(RingConfig(service_weight=Weight(9, 9), set_aside_above="block"), FULL) == Bounds(FULL)
    assert (Bounds().bar, Bounds().limit) == (None, UNLIMITED)


def test_every_reason_has_words() -> None:
    told = {in_words(reason, FULL, FULL, 3) for reason in REASONS}
    assert len(told) == len(REASONS)
    assert in_words("overweight", None, None, 3) == "it was tried without an outcome, and is not tried again"


def event(fate: Fate, detail: str) -> Event:
    return next(EventRun(fate, "a", 1, 2, [b"x" * 32], [], detail).unroll())


@given(st.text(), st.text(min_size=1))
def test_a_decision_records_its_reason_and_actor(why: str, actor: str) -> None:
    told = event(Fate.DISCARDED, decided(why, actor))
    assert told.why == why
    assert told.actor == actor.replace("(", "[").replace(")", "]")


@given(st.text(), st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_an_event_of_return_records_its_reason_and_the_last_untried_message(why: str, page: int, index: int) -> None:
    told = event(Fate.RETURNED, with_untried(why, page, index))
    assert told.untried_up_to == (page, index)
    assert event(Fate.RETURNED, why).actor is None


def test_other_details_are_what_they_are() -> None:
    assert event(Fate.RETURNED, "their API is down").why == "their API is down"
    assert event(Fate.RETURNED, with_untried("down", 3, 4)).why == "down"
    assert event(Fate.RETURNED, with_untried("", 3, 4)).why == ""
    aside = event(Fate.SET_ASIDE, with_arrival("it weighs much", "2026-11-21T17:00:00+00:00"))
    assert (aside.why, aside.sent, aside.actor) == ("it weighs much", "2026-11-21T17:00:00+00:00", None)
    moved = event(Fate.REQUEUED, decided("raised; goes on at 7:8", "a person"))
    assert (moved.moved_to, moved.actor) == ((7, 8), "a person")
    assert event(Fate.PROCESSED, "").moved_to is None
    assert event(Fate.EXECUTED, "a person (else)").actor == "a person (else)"
