"""Runs that fail if an origin did not get its promised share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import LinearWeigher, MessageQueue, Weight
from tests.airflow.stage import CONN_ID, Airflow, Run

pytestmark = pytest.mark.airflow


@pytest.fixture
def run() -> Run:
    return Airflow().run()


def check(**kwargs: Any) -> Any:
    from airflow_mq.operators.fairness import CheckFairnessOperator

    return CheckFairnessOperator(task_id="check", mq_conn_id=CONN_ID, **kwargs)


def serve(queue: MessageQueue, order: str, blocks: int) -> None:
    """Two that send more than anybody can take."""
    weigher = LinearWeigher(Weight(1, 0), Weight(0, 0))
    queue.admin.change_ring(order=order, service_weight=Weight(16, 1 << 20), weigher=weigher, rounds_per_block=16)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"x"] * 100)
    for _ in range(blocks):
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)


def test_an_empty_ledger_is_fair(queue: MessageQueue, run: Run) -> None:
    told = run.execute(check(most_wait=0, most_error="0", least_jain="1.0"))
    assert told == {
        "blocks": 0,
        "jain": None,
        "longest_wait": 0,
        "most_late": 0,
        "most_error": 0.0,
        "queues": 0,
        "origins": [],
    }


def test_what_is_fair_passes(queue: MessageQueue, run: Run) -> None:
    serve(queue, "deficit", 5)
    told = run.execute(check(most_wait="0", most_error="0.01", least_jain=0.99, blocks="4"))
    assert (told["blocks"], told["longest_wait"]) == (4, 0)
    assert [(one["origin"], one["promised"]) for one in told["origins"]] == [("a", 0.5), ("b", 0.5)]


def test_what_is_not_fails_and_names_who(queue: MessageQueue, run: Run) -> None:
    serve(queue, "rotation", 3)
    for bounds, says in (
        ({"most_wait": 0}, "b waited 1 block, and still waits, more than 0"),
        ({"most_error": 0.1}, "b received 33.3%, but its fair share is 50.0%"),
        ({"least_jain": 0.95}, "Jain's index is 0.900, below 0.95"),
    ):
        with pytest.raises(Exception, match=says) as raised:
            run.execute(check(**bounds))
        assert "over 3 blocks" in str(raised.value)
        for command in ("report fairness", "explain ORIGIN"):
            assert f"`airflow-mq {command} --conn-id {CONN_ID} --ring default`" in str(raised.value)
    assert run.execute(check())["jain"] == pytest.approx(0.9)
    assert run.execute(check(most_error=0.1, blocks=2))["most_error"] == 0.0


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"most_wait": "1.5"}, "invalid most_wait '1.5': expected a whole number of blocks"),
        ({"blocks": -1}, "invalid blocks -1: expected a whole number"),
        ({"most_error": "much"}, "invalid most_error 'much': expected a fraction, such as 0.05"),
        ({"least_jain": "nan"}, "invalid least_jain 'nan': expected a number from 0 to 1"),
        ({"least_jain": 95}, "invalid least_jain 95: expected a number from 0 to 1"),
        ({"most_error": -1}, "invalid most_error -1: expected a fraction"),
        ({"blocks": 0}, "blocks"),
        ({"least_jain": "high"}, "invalid least_jain 'high': expected a number from 0 to 1"),
    ],
)
def test_bounds_that_are_none(sqlite_queue: MessageQueue, run: Run, bounds: Any, says: str) -> None:
    with pytest.raises(Exception, match=says):
        run.execute(check(**bounds))


def test_the_result_of_many_queues_is_bounded(sqlite_queue: MessageQueue, run: Run) -> None:
    weigher = LinearWeigher(Weight(1, 0), Weight(0, 0))
    sqlite_queue.admin.change_ring(order="rotation", service_weight=Weight(250, 1 << 20), weigher=weigher)
    for name in [f"o{number:03}" for number in range(300)]:
        sqlite_queue.enqueue_messages(name, [b"x"] * 3)
    for _ in range(2):
        block = sqlite_queue.blocks.plan()
        sqlite_queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        sqlite_queue.blocks.settle(block)

    told = run.execute(check())

    waits = [one["longest_wait"] for one in told["origins"]]
    assert (told["queues"], len(waits)) == (300, 100)
    assert waits == sorted(waits, reverse=True) and waits[0] == told["longest_wait"] > 0


def test_the_dag_of_the_page(run: Run) -> None:
    """The DAG in docs/how-it-works.md."""
    page = (Path(__file__).parents[2] / "docs" / "how-it-works.md").read_text()
    (dag,) = (part for part in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "airflow.sdk" in part)
    names: dict[str, Any] = {}
    exec(compile(dag.replace(":\n    Check", " as dag:\n    Check"), "how-it-works.md", "exec"), names)  # noqa: S102
    (task,) = names["dag"].tasks
    assert (task.task_id, task.most_wait, task.blocks) == ("check", 5, 200)


def test_an_origin_in_the_error_cannot_look_like_another_one(sqlite_queue: MessageQueue, run: Run) -> None:
    sqlite_queue.admin.change_ring(invisible_origins=True)
    sqlite_queue.enqueue_messages("c\u202e", [b"x"] * 100)
    serve(sqlite_queue, "rotation", 3)

    with pytest.raises(Exception, match=r"c\\u202e waited") as raised:
        run.execute(check(most_wait=0))
    assert "\u202e" not in str(raised.value)


# -- the notifier --


def starving(told: list[str], **bounds: Any) -> Any:
    from airflow_mq.notifications import StarvingNotifier

    return StarvingNotifier(told.append, mq_conn_id=CONN_ID, **bounds)


def test_a_starving_queue_is_reported(queue: MessageQueue) -> None:
    serve(queue, "rotation", 6)
    queue.admin.change_ring(invisible_origins=True)
    queue.enqueue_message("evil {{ 1/0 }}\u202e", b"x")
    told: list[str] = []

    starving(told, most_wait=10**6)({})
    assert told == []
    starving(told, oldest=0, most_wait=0)({})

    (text,) = told
    assert text.startswith("Queues of ring 'default' wait too long:")
    assert "the oldest of its 1 messages waits for" in text and "airflow-mq explain" in text
    assert "evil {{ 1/0 }}\\u202e" in text and text.isprintable() is False and "\u202e" not in text


def test_no_queue_starves_in_an_empty_ring(sqlite_queue: MessageQueue) -> None:
    told: list[str] = []

    starving(told)({})
    starving(told, oldest=0.0)({})

    assert told == []


def test_many_who_starve_are_not_all_named(sqlite_queue: MessageQueue) -> None:
    for number in range(30):
        sqlite_queue.enqueue_message(f"a{number:02}", b"x")
    told: list[str] = []

    starving(told, oldest=0.0)({})

    assert told[0].count("\n") == 12 and "and 20 more: airflow-mq report fairness" in told[0]
