"""Attempts that replace earlier ones: outcomes of the largest epoch that began a message count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import Report, Yield
from airflow_mq.engine.queue.blocks.reports import answers_of, pack_reports
from airflow_mq.engine.rules.claims import ClaimRun
from airflow_mq.engine.rules.config import RingConfig
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.message import ID_BYTES
from airflow_mq.engine.rules.outcome import BEGUN, DONE, Mark, NotBegun, Outcome
from airflow_mq.engine.rules.settle import Answers
from tests.store.queue.conftest import Maker

MESSAGES = 8
OUTCOMES: list[Outcome | Mark] = [DONE, Yield("later"), BEGUN, NotBegun("no module")]


@st.composite
def a_report(draw: st.DrawFn) -> Report:
    first, last = sorted(draw(st.tuples(*[st.integers(0, MESSAGES - 1)] * 2)))
    outcome, epoch = draw(st.sampled_from(OUTCOMES)), draw(st.integers(0, 3))
    ids = (
        b"".join(bytes([epoch + 1, at]) * (ID_BYTES // 2) for at in range(first, last + 1)) if outcome is DONE else b""
    )
    return Report("a", 0, first, last, outcome, ids=draw(st.sampled_from([b"", ids])), epoch=epoch)


def naive(reports: Sequence[Report], item: int) -> tuple[Outcome | Mark | None, bool]:
    """Return the outcome of a message, and whether any attempt began it."""
    mine = [report for report in reports if report.first <= item <= report.last]
    begun = [report.epoch for report in mine if report.outcome is BEGUN]
    for report in mine:
        if not isinstance(report.outcome, Mark) and (not any(begun) or report.epoch == max(begun)):
            return report.outcome, bool(begun)
    return None, bool(begun)


@given(st.lists(st.lists(a_report(), max_size=4), max_size=6))
def test_outcomes_of_the_largest_epoch_count(calls: list[list[Report]]) -> None:
    config = RingConfig()
    answers = answers_of([data for reports in calls if (data := pack_reports(reports, config)[0])]).get("a", Answers())
    reports = [report for call in calls for report in call]
    for item in range(MESSAGES):
        found = answers.get(0, item)
        assert (type(found), answers.was_begun(0, item)) == (type(naive(reports, item)[0]), naive(reports, item)[1])
        whole = answers.whole(ClaimRun(0, item, 1))
        if whole and whole.ids:
            (id_,) = whole.ids_of(ClaimRun(0, item, 1)) or ()
            assert id_[1] == item, "the id is that of this message"


def test_an_epoch_settles_with_its_own_outcomes(make_queue: Maker) -> None:
    queue = make_queue()
    queue.enqueue_messages("acme", [b"1", b"2", b"3"])
    block = queue.blocks.plan()
    queue.blocks.report(block, [Report("acme", 0, 0, 2)])
    queue.blocks.mark(block, block.claims, epoch=2)
    queue.blocks.report(block, [Report("acme", 0, 0, 0, epoch=2), Report("acme", 0, 1, 2, epoch=1)])
    assert queue.footprint("acme").count == 2, "for every reader at once"
    settled = queue.blocks.settle(block)
    assert (settled.processed, settled.returned) == (1, 2)
    block = queue.blocks.plan()
    with pytest.raises(InvalidInput, match="epoch"):
        queue.blocks.report(block, [Report("acme", 0, 1, 1, epoch=-1)])
