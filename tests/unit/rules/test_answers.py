"""Reported outcomes of a queue: which one counts, and how many steps it takes to find it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from airflow_mq.engine.rules.claims import ClaimRun
from airflow_mq.engine.rules.outcome import DONE, BadFormat, Begun, Done, NotBegun, Outcome, Yield
from airflow_mq.engine.rules.settle import Answers

OUTCOMES: list[Outcome] = [DONE, Done(success=False), BadFormat(), Yield("later")]


def steps_of(call: Callable[[], object]) -> int:
    """Return how many lines of `core.settle` a call runs; each turn of a generator counts."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.endswith("rules/settle.py"):
            return None
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def alone(answers: Answers, at: int) -> None:
    answers.add(0, at, at, OUTCOMES[at % 3])


def in_pairs(answers: Answers, at: int) -> None:
    answers.add(0, 2 * (at // 2), 2 * (at // 2) + 1, OUTCOMES[at % 4])


def begun_only(answers: Answers, at: int) -> None:
    answers.add(0, at, at, Begun() if at % 2 else NotBegun(f"error {at}"))


def across(answers: Answers, at: int) -> None:
    answers.add(0, at // 2, at, OUTCOMES[at % 4])


@pytest.mark.parametrize("report", [alone, in_pairs, begun_only, across])
def test_finding_outcomes_takes_steps_in_proportion_to_reports(report: Callable[[Answers, int], None]) -> None:
    def find(count: int) -> None:
        answers = Answers()
        for at in range(count):
            report(answers, at)
        for item in range(count):
            answers.get(0, item)
            answers.was_begun(0, item)
            answers.why_not_begun(0, item)
        answers.knows(ClaimRun(0, 0, count))
        answers.items()

    assert steps_of(lambda: find(2_000)) < 3 * steps_of(lambda: find(1_000))


@pytest.mark.parametrize("seed", range(20))
def test_the_first_outcome_and_the_latest_error_count(seed: int) -> None:
    random, answers = Random(seed), Answers()
    outcomes: dict[int, Outcome] = {}
    errors: dict[int, str] = {}
    begun: set[int] = set()
    for at in range(60):
        first = random.randrange(40)
        last = min(first + random.choice([0, 0, 1, 5, 30]), 39)
        reported = random.choice([*OUTCOMES, Begun(), NotBegun(f"error {at}")])
        answers.add(0, first, last, reported)
        for item in range(first, last + 1):
            if isinstance(reported, Begun):
                begun.add(item)
            elif isinstance(reported, NotBegun):
                errors[item] = reported.error
            else:
                outcomes.setdefault(item, reported)
        item = random.randrange(40)
        assert answers.get(0, item) == outcomes.get(item)
    for item in range(40):
        assert answers.get(0, item) == outcomes.get(item)
        assert answers.was_begun(0, item) == (item in begun)
        assert answers.why_not_begun(0, item) == errors.get(item, "")
    assert answers.items() == {(0, item) for item, one in outcomes.items() if not isinstance(one, Yield)}
    assert answers.get(1, 0) is None
