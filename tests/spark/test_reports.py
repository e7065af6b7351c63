"""Answers are reported while the next message runs, and before one that is expected to take long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import Block, Done, MessageQueue, Processor
from airflow_mq.engine.rules.errors import StoreUnreachable, TokenRefused
from airflow_mq.spark.reports import Reporter, flushed
from airflow_mq.spark.share import run_share
from airflow_mq.spark.store_side import StoreSide, run_in_place, tasks_of, terms_of
from tests.spark.conftest import processors, whole
from tests.waiting import eventually

MakeRing = Callable[..., MessageQueue]
SLOW = b"slow"


def answered(queue: MessageQueue, block: Block) -> list[tuple[str, int]]:
    return sorted(
        (origin, item) for origin, answers in queue.blocks.reported(block).items() for _, item in answers.items()
    )


def share_of(queue: MessageQueue, block: Block) -> tuple[Processor, StoreSide, Any]:
    terms = terms_of(queue, block)
    (task,) = tasks_of(block, terms, processors(), whole(processors()), 1)
    return task.processor, StoreSide(queue, block.token, task.share), terms


@pytest.mark.slow
def test_a_finished_message_is_reported_while_the_next_one_runs(either_store: str, make_ring: MakeRing) -> None:
    queue = make_ring(either_store)
    queue.enqueue_messages("a", [b"quick", SLOW])
    block, go_on = queue.blocks.plan(), threading.Event()

    def process(payload: bytes, origin: str) -> None:
        assert payload != SLOW or go_on.wait(60)

    working = threading.Thread(
        target=run_in_place, args=(queue, block.token, processors(), whole(processors())), kwargs={"function": process}
    )
    working.start()
    try:
        eventually(lambda: answered(queue, block) == [("a", 0)])
    finally:
        go_on.set()
        working.join()
    assert answered(queue, block) == [("a", 0), ("a", 1)]


def test_an_executor_reports_by_a_timer_of_its_own(make_ring: MakeRing) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"quick", SLOW])
    block = queue.blocks.plan()
    processor, side, terms = share_of(queue, block)
    side.seconds = 0.05

    def process(payload: bytes, origin: str) -> None:
        if payload == SLOW:
            eventually(lambda: answered(queue, block) == [("a", 0)])

    assert run_share(processor, side, terms, function=process).processed == 2


def test_while_a_child_works_its_parent_reports(make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"quick", SLOW])
    block = queue.blocks.plan()
    processor, side, terms = share_of(queue, block)
    side.seconds = 0.05
    reported = tmp_path / "reported"
    report = side.report

    def report_and_tell(reports: Any) -> None:
        report(reports)
        reported.touch()

    side.report = report_and_tell  # type: ignore[method-assign]

    def process(payload: bytes, origin: str) -> None:
        if payload == SLOW:
            eventually(reported.exists)

    assert run_share(processor, side, terms, function=process, careful=True).processed == 2


def test_what_cannot_be_sent_is_kept_and_its_error_raised_where_answers_are_added() -> None:
    answers: list[Exception | None] = [StoreUnreachable(), None]
    sent: list[int] = []

    def send(reports: Any) -> None:
        error = answers.pop(0)
        if error:
            raise error
        sent.extend(report.first for report in reports)

    reporter = Reporter(send, seconds=3600)
    reporter.add("a", 0, 1, Done())
    reporter.flush_quietly()
    reporter.add("a", 0, 3, Done())
    reporter.flush()
    assert sent == [1, 3]

    answers.append(TokenRefused())
    reporter.add("a", 0, 5, Done())
    with pytest.raises(TokenRefused), flushed(reporter):
        reporter.flush()


def test_a_timer_names_a_refusal_once(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(reports: object) -> None:
        raise TokenRefused("block 7 was released; it is too late to report on it, and nothing was changed")

    reporter = Reporter(refuse)
    reporter.add("a", 0, 0, Done())
    for _ in range(3):
        reporter.flush_quietly()

    assert [record.getMessage() for record in caplog.records] == [
        "the block takes no more outcomes: block 7 was released; it is too late to report on it, and nothing was changed"
    ]
    # The thread that adds learns it, too.
    with pytest.raises(TokenRefused):
        reporter.flush()
