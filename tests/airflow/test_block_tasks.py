"""Plan, process, settle: each by itself, retried, cleared, and in every order (F12, F13)."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.core.errors import Busy
from airflow_mq.processors import Processor, Processors
from airflow_mq.queue.blocks.blocks import Blocks
from tests.airflow.functions import SEEN
from tests.airflow.stage import CONN_ID, FUNCTION, Airflow, Run, fill, in_place, processed

pytestmark = pytest.mark.airflow


@pytest.fixture
def run() -> Run:
    return Airflow().run()


# -- the plan --


def test_a_plan_returns_parts_and_nothing_of_the_messages(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a1": [b"x"], "a2": [b"y"] * 3, "b": [b"z"]})

    parts = run.plan()

    assert {part["name"].partition(" ")[0]: part["where"] for part in parts} == {
        "alpha": "in place",
        "beta": "in place",
    }
    assert sum(part["messages"] for part in parts) == 5
    block = queue.blocks.get(run.xcoms["plan", "block"]["token"])
    assert block.key == "dag/r1/plan"
    assert run.xcoms["plan", "block"] == {
        "id": block.id, "token": block.token, "ring": "default", "messages": 5,
        "planned": list(block.planned), "limit": list(block.limit),
    }  # fmt: skip
    assert json.loads(json.dumps(parts)) == parts
    run.settle()


def test_a_retry_gets_the_same_block_and_a_cleared_run_a_new_one(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x"]})
    run.plan()
    first = run.xcoms["plan", "block"]["id"]

    run.plan()
    assert run.xcoms["plan", "block"]["id"] == first
    run.settle()
    assert run.plan() != []
    assert run.xcoms["plan", "block"]["id"] != first
    run.settle()


def test_nothing_to_do_gives_no_parts(queue: MessageQueue, run: Run) -> None:
    assert run.plan() == []
    assert run.settle()["messages"] == 0


@pytest.mark.parametrize("limit", [[3, 1 << 20], "[3, 1048576]", {"time": 3, "size": 1 << 20}, Weight(3, 1 << 20)])
def test_a_limit_may_be_written_in_several_ways(sqlite_queue: MessageQueue, run: Run, limit: Any) -> None:
    fill(sqlite_queue, {"a": [b"x"] * 10})

    assert sum(part["messages"] for part in run.plan(limit=limit, lease="60")) == 3
    run.settle()


@pytest.mark.parametrize("limit", ["soon", "[1]", [1, -1], {"time": 1}])
def test_a_limit_that_is_none_is_refused(sqlite_queue: MessageQueue, run: Run, limit: Any) -> None:
    with pytest.raises(Exception, match="limit"):
        run.plan(limit=limit)


def test_an_unrouted_origin_is_paused_and_the_others_are_served(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x"], "zebra": [b"?"]})

    summary = run.whole()

    assert (summary["processed"], summary["went_back"]) == (1, 1)
    assert [(one.origin, one.reason) for one in queue.admin.paused()] == [("zebra", "no processor takes this origin")]


def test_a_block_of_unrouted_origins_is_planned_anew(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"zebra": [b"?"] * 3, "a": [b"x"]})
    queue.admin.set_origin("zebra", share=1 << 20)

    parts = run.plan(limit=[2, 1 << 20])

    assert [part["name"] for part in parts] == ["alpha"]
    run.settle()


def test_an_unrouted_origin_is_refused_if_the_rules_refuse_it(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x"], "zebra": [b"?"]})

    with pytest.raises(Exception, match="no processor takes 'zebra'"):
        run.plan(in_place(unrouted="refuse"))

    assert [block.state for block in queue.blocks.list()] == ["released"]
    assert queue.admin.paused() == []


def only(pattern: str, *, unrouted: str = "skip") -> Processors:
    return Processors([Processor("one", FUNCTION, origins=(pattern,), where="in place")], unrouted=unrouted)


def whole(run: Run, processors: Processors, **kwargs: Any) -> Any:
    """A run of a DAG with these processors."""
    for index in range(len(run.plan(processors, **kwargs))):
        run.process(index, processors)
    return run.settle(processors=processors)


def test_two_dags_with_different_processors_share_a_ring(queue: MessageQueue) -> None:
    airflow = Airflow()
    fill(queue, {"a": [b"x"] * 4, "b": [b"y"] * 4, "zebra": [b"?"]})

    first = whole(airflow.run("r1", "orders"), only("a*"), limit=[2, 1 << 20])
    second = whole(airflow.run("r1", "mail"), only("b*"))

    assert (first["processed"], first["went_back"], second["processed"], second["went_back"]) == (2, 0, 4, 0)
    assert [queue.footprint(one).count for one in ("a", "b", "zebra")] == [2, 0, 1]
    assert queue.admin.paused() == []
    assert {one.name: one.limit for one in queue.inspect.servers()} == {
        "DAG 'orders', task 'plan'": Weight(2, 1 << 20), "DAG 'mail', task 'plan'": None
    }  # fmt: skip
    assert queue.inspect.explain("a").sentence.endswith("runs in the next block of DAG 'orders', task 'plan'.")
    unserved = queue.inspect.explain("zebra")
    assert unserved.reason == "unserved" and "DAG 'mail', task 'plan' takes b*" in unserved.sentence


@pytest.mark.parametrize(
    "later",
    [("mail", only("z*")), ("dag", only("a*")), ("dag", only("*", unrouted="pause"))],
    ids=["another DAG takes it", "the rule is gone", "the processor takes it"],
)
def test_a_pause_made_by_a_rule_ends_with_the_rule(queue: MessageQueue, later: tuple[str, Processors]) -> None:
    airflow = Airflow()
    fill(queue, {"a": [b"x"], "zebra": [b"?"]})
    queue.admin.pause("zoo", "a person's")
    whole(airflow.run(), only("a*", unrouted="pause"))
    (first,) = (one for one in queue.admin.paused() if one.origin == "zebra")
    assert first.until is not None
    airflow.run("r2").plan(only("a*", unrouted="pause"))
    (again,) = (one for one in queue.admin.paused() if one.origin == "zebra")
    assert again.until is not None and again.until > first.until

    dag_id, processors = later
    run = airflow.run("r3", dag_id)
    run.plan(processors)

    assert [one.origin for one in queue.admin.paused()] == ["zoo"]
    run.settle()


def test_a_plan_that_waits_too_long_is_empty(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*args: Any, **kwargs: Any) -> Any:
        raise Busy("another task")

    fill(sqlite_queue, {"a": [b"x"]})
    monkeypatch.setattr(Blocks, "plan", busy)

    assert run.plan(patience=0) == []
    assert run.settle() is None


def test_a_plan_releases_the_blocks_of_runs_that_are_over(queue: MessageQueue) -> None:
    airflow = Airflow()
    ended, alive, foreign, next_one = (airflow.run(name) for name in ("ended", "alive", "foreign", "next"))
    for number, one in enumerate((ended, alive, foreign)):
        fill(queue, {f"a{number}": [b"x"]})
        one.plan()
    airflow.runs["dag", "ended"] = "failed"
    del airflow.runs["dag", "foreign"]
    airflow.runs["other", "foreign"] = "running"
    key_of = {one.run_id: queue.blocks.get(one.xcoms["plan", "block"]["token"]) for one in (ended, alive, foreign)}
    assert {block.state for block in key_of.values()} == {"planned"}

    assert sum(part["messages"] for part in next_one.plan()) == 2  # of the run that ended, and of the one deleted

    states = {
        one.run_id: queue.blocks.get(one.xcoms["plan", "block"]["token"]).state for one in (ended, alive, foreign)
    }
    assert states == {"ended": "released", "alive": "planned", "foreign": "released"}
    for one in (alive, next_one):
        one.settle()


def test_a_block_of_another_airflow_is_left_alone(queue: MessageQueue) -> None:
    fill(queue, {"a": [b"x"]})
    elsewhere = Airflow().run("r1", "theirs")
    elsewhere.plan()
    queue.blocks.plan("by hand")

    assert Airflow().run("r1", "ours").plan() == []

    assert queue.blocks.get(elsewhere.xcoms["plan", "block"]["token"]).state == "planned"
    elsewhere.settle()
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)


# -- processing --


def test_a_part_processes_only_its_own_messages(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a1": [b"1"], "a2": [b"2"], "b": [b"3"]})
    parts = run.plan()

    for index, part in enumerate(parts):
        SEEN.clear()
        run.process(index)
        mine = in_place().mine(part, ["a1", "a2", "b"])
        assert {origin for _, origin in SEEN} == {origin for origins in mine.values() for origin in origins}
    assert run.settle()["processed"] == 3


def test_a_message_that_fails_fails_alone(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"raise"], "b": [b"fine", b"bad"], "aa": [b"yield"]})

    summary = run.whole()

    assert (summary["processed"], summary["failed"], summary["went_back"]) == (1, 1, 2)


def test_what_is_left_of_an_ended_block_is_skipped(queue: MessageQueue, run: Run) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    fill(queue, {"a": [b"x"]})
    run.whole()

    with pytest.raises(AirflowSkipException, match="was settled before"):
        run.process(0)
    run.xcoms["plan", "block"] = None
    with pytest.raises(AirflowSkipException, match="planned no block"):
        run.process(0)


def test_a_block_that_was_released_fails_what_comes_too_late(queue: MessageQueue, run: Run) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    fill(queue, {"a": [b"x"]})
    run.plan()
    queue.blocks.release(run.xcoms["plan", "block"]["token"])

    with pytest.raises(AirflowFailException, match="lease ran out"):
        run.process(0)
    with pytest.raises(AirflowFailException, match="back in their queues"):
        run.settle()


@pytest.mark.parametrize(
    "change",
    [
        {"processors": ["gamma"]},
        {"processors": []},
        {"processors": ["alpha", "--conf"]},
        {"processors": None},
        {"part": 2},
        {"parts": 3},
        {"part": -1},
        {"part": "0; rm"},
        {"messages": -1},
        {"where": "spark"},
    ],
)
def test_a_part_from_an_xcom_is_not_taken_on_trust(sqlite_queue: MessageQueue, run: Run, change: Any) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan()
    run.xcoms["plan", "return_value"] = [{**run.xcoms["plan", "return_value"][0], **change}]

    with pytest.raises(AirflowFailException, match="invalid part of a block"):
        run.process(0)
    with pytest.raises(AirflowFailException, match=r"^alpha \(process_0\) failed"):
        run.settle()


def test_a_task_that_is_terminated_ends_in_the_middle(sqlite_queue: MessageQueue, run: Run) -> None:
    from airflow_mq.operators.blocks.process import ProcessMessagesOperator, TaskStopped
    from tests.airflow import functions

    fill(sqlite_queue, {"a": [b"1", b"2", b"3"]})
    run.plan()
    operator = ProcessMessagesOperator(
        task_id="process", part=run.xcoms["plan", "return_value"][0], processors=in_place(), mq_conn_id=CONN_ID
    )

    def stop(payload: bytes, origin: str) -> None:
        operator.on_kill()  # as the handler of SIGTERM calls it, in the middle of whatever runs

    functions.stop = stop  # type: ignore[attr-defined]
    operator.processors = in_place(function="tests.airflow.functions:stop")
    try:
        with pytest.raises(TaskStopped):
            run.execute(operator, 0)
    finally:
        del functions.stop  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"^alpha \(process_0\) failed"):
        run.settle()
    assert run.xcoms["settle", "settled"]["went_back"] == 3


# -- settling --


def test_settling_returns_the_summary_of_the_block(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x", b"y"], "b": [b"z"]})

    summary = run.whole(limit=[10, 1 << 20])

    assert {name: summary[name] for name in ("messages", "processed", "origins", "moved", "limit")} == {
        "messages": 3, "processed": 3, "origins": 2, "moved": 3, "limit": [10, 1 << 20],
    }  # fmt: skip
    assert run.xcoms["settle", "settled"] == summary


def test_what_was_measured_is_kept_under_the_names_of_processors(sqlite_queue: MessageQueue, run: Run) -> None:
    fill(sqlite_queue, {"a1": [b"used"], "b": [b"used"]})
    for index in range(len(run.plan())):
        run.process(index)
    run.settle(processors=in_place().to_json())
    assert [(fit.processor, fit.origin) for fit in sqlite_queue.inspect.fits()] == [("alpha", "a1"), ("beta", "b")]


def test_a_failed_job_turns_the_run_red_and_its_block_is_settled(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x"], "b": [b"y"]})
    run.plan()
    run.process(1)
    with pytest.raises(Exception, match="cannot load function"):
        run.process(0, in_place(function="tests.airflow.functions:missing"))

    with pytest.raises(Exception, match=r"^alpha \(process_0\) failed. The block is settled"):
        run.settle()

    assert run.xcoms["settle", "settled"]["processed"] == 1
    assert [block.state for block in queue.blocks.list()] == ["settled"]


def test_a_function_that_cannot_be_loaded_burns_no_attempts(queue: MessageQueue, run: Run) -> None:
    queue.admin.change_ring(max_attempts=2)
    fill(queue, {"b": [b"1", b"2"]})
    for number in range(2):
        run = run.airflow.run(f"run {number}")
        run.plan()
        with pytest.raises(Exception, match="cannot load function"):
            run.process(0, in_place(function="tests.airflow.functions:missing"))
        with pytest.raises(Exception, match=r"^beta \(process_0\) failed"):
            run.settle()

    assert ([one.attempts for one in queue.inspect.peek("b")], queue.set_aside.list()) == ([0, 0], [])
    assert "cannot load function tests.airflow.functions:missing" in queue.inspect.explain("b").sentence
    assert run.airflow.run("run 2").whole()["processed"] == 2


def test_settling_after_a_pause_is_green_where_every_message_was_reported(
    queue: MessageQueue, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(queue, {"a": [b"1", b"2"]})
    for index in range(len(run.plan())):
        run.process(index)
    token = run.xcoms["plan", "block"]["token"]
    # As the next plan does, once the lease has run out.
    queue.blocks.release(token)

    summary = run.settle()

    assert (summary["processed"], summary["went_back"]) == (2, 0)
    assert "its lease ran out. Every outcome was reported" in capsys.readouterr().out


def test_a_plan_whose_answer_was_lost_is_settled_by_its_key(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x"]})
    run.plan()
    run.xcoms.clear()

    assert run.settle()["went_back"] == 1
    assert queue.blocks.list("planned") == []


def test_settling_emits_the_asset_while_anything_is_ready_and_moves(queue: MessageQueue, run: Run) -> None:
    from airflow.sdk import Asset

    outlet = Asset("ready")
    fill(queue, {"a": [b"x"] * 3})
    run.plan(limit=[2, 1 << 20])
    run.process(0)
    run.settle(outlet=outlet)
    assert run.events == [outlet]

    run.plan(limit=[2, 1 << 20])
    run.process(0)
    run.settle(outlet=outlet)
    assert run.events == [outlet]

    fill(queue, {"b": [b"yield"]})
    run.plan()
    run.process(0)
    run.settle(outlet=outlet)
    assert run.events == [outlet], "a block in which nothing moved does not call for the next"


def test_set_aside_messages_are_reported(queue: MessageQueue, run: Run) -> None:
    told: list[Any] = []

    def broken(context: Any) -> None:
        told.append(context["airflow_mq"])
        raise ValueError("the chat is down")

    fill(queue, {"a": [b"heavy"]})
    run.plan()
    run.process(0)
    run.settle(notifiers=broken)

    assert [one["set_aside"] for one in told] == [1]


# -- in every order --


@pytest.mark.slow
@pytest.mark.parametrize("start", range(5))
def test_tasks_retried_and_cleared_in_every_order_lose_nothing(sqlite_queue: MessageQueue, start: int) -> None:
    tasks = ("plan", "p0", "p1", "p2", "settle")
    airflow = Airflow()
    for number, order in enumerate(itertools.product([tasks[start]], tasks, tasks)):
        fill(sqlite_queue, {"a1": [b"1"], "a2": [b"2"], "b": [b"3"]})
        run = airflow.run(f"run {number}")
        for task in ("plan", "p1"):
            run.quietly(task)
        for task in order:
            run.quietly(task)
        for _ in range(2):
            airflow.run(f"last {number}").whole()
        airflow.runs["dag", run.run_id] = airflow.runs["dag", f"last {number}"] = "success"
    airflow.run("the end").whole()

    assert Counter(origin for origin, _ in processed(sqlite_queue)) == dict.fromkeys(("a1", "a2", "b"), 5**2)
    assert sqlite_queue.footprints() == [] or all(print_.count == 0 for _, print_ in sqlite_queue.footprints())
    assert sqlite_queue.blocks.list("planned") == []


def test_three_runs_at_once_share_the_work_and_all_end_well(queue: MessageQueue) -> None:
    airflow = Airflow()
    fill(queue, {f"{letter}{number}": [b"%d" % number] * 5 for letter in "ab" for number in range(10)})
    runs = [airflow.run(name) for name in ("manual", "scheduled", "backfill")]
    failed: list[BaseException] = []
    gate = threading.Barrier(len(runs))

    def live(run: Run) -> None:
        gate.wait()
        try:
            for _ in range(3):
                run.whole(limit=[40, 1 << 20])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=live, args=[run]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert len(processed(queue)) == 100
    assert sorted(Counter(origin for origin, _ in processed(queue)).values()) == [5] * 20


def test_the_number_of_parts_is_bounded_by_the_splits(sqlite_queue: MessageQueue, run: Run) -> None:
    fill(sqlite_queue, {f"a{number}": [b"x"] for number in range(300)})
    processors = Processors([Processor("alpha", FUNCTION, where="in place", split=7)])

    assert len(run.plan(processors)) == 7
    with suppress(Exception):
        run.settle()


@pytest.mark.parametrize("processor", ["tests.airflow.functions:process", None], ids=["name", "function"])
def test_service_queues_services_in_the_task(queue: MessageQueue, run: Run, processor: str | None) -> None:
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    queue.enqueue_messages("a", [b"1", b"2"])
    seen: list[tuple[bytes, str, int]] = []

    def process(payload: bytes, origin: str, message: Any) -> None:
        seen.append((payload, origin, message.attempts))

    operator = ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=processor or process)
    result = run.execute(operator)

    assert (result["processed"], queue.footprint("a").count) == (2, 0)
    assert processor or seen == [(b"1", "a", 0), (b"2", "a", 0)]


def test_service_queues_refuses_an_unknown_function(queue: MessageQueue, run: Run) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from airflow_mq.operators.blocks import ServiceQueuesOperator

    operator = ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor="tests.airflow.functions:missing")
    with pytest.raises(AirflowFailException, match="cannot load function"):
        run.execute(operator)
