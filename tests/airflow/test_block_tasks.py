"""Plan, process, settle: each by itself, retried, cleared, and in every order (F12, F13)."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from contextlib import suppress
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight, batch_processor
from airflow_mq.engine.queue.blocks.blocks import PAGE, Blocks
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.processors import Processor, Processors
from airflow_mq.spark import store_side
from tests.airflow.functions import SEEN
from tests.airflow.stage import CONN_ID, FUNCTION, Airflow, Run, fill, in_place, processed
from tests.waiting import eventually

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
    assert block.key == "here:dag/r1/plan"
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

    assert (summary["processed"], summary["returned"]) == (1, 1)
    (paused,) = queue.admin.paused()
    assert paused.origin == "zebra"
    assert paused.reason == "no processor of DAG 'dag' of Airflow 'here', task 'plan' takes this origin"


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

    assert (first["processed"], first["returned"], second["processed"], second["returned"]) == (2, 0, 4, 0)
    assert [queue.footprint(one).count for one in ("a", "b", "zebra")] == [2, 0, 1]
    assert queue.admin.paused() == []
    assert {one.title: one.limit for one in queue.inspect.servicing().servers} == {
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


@pytest.mark.parametrize("origins", [("a", "zebra"), ("zebra",)])
def test_a_retry_by_rules_that_skip_origins_pauses_none(
    queue: MessageQueue, run: Run, origins: tuple[str, ...]
) -> None:
    """The first try planned a block of other rules and ended before it returned its parts."""
    fill(queue, {origin: [b"x"] for origin in origins})
    run.plan(only("*"))

    parts = run.plan(only("a*"))

    assert len(parts) == len(origins) - 1 and queue.admin.paused() == []
    run.settle()
    assert queue.footprint("zebra").count == 1


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
    ended, alive, deleted, next_one = (airflow.run(name) for name in ("ended", "alive", "deleted", "next"))
    for number, one in enumerate((ended, alive, deleted)):
        fill(queue, {f"a{number}": [b"x"]})
        one.plan()
    airflow.runs["dag", "ended"] = "failed"
    del airflow.runs["dag", "deleted"]
    airflow.runs["other", "deleted"] = "running"
    # More of them than one page, the latest first.
    for number in range(PAGE):
        queue.blocks.plan(f"by hand {number}", lease=3600)
    key_of = {one.run_id: queue.blocks.get(one.xcoms["plan", "block"]["token"]) for one in (ended, alive, deleted)}
    assert {block.state for block in key_of.values()} == {"planned"}

    assert sum(part["messages"] for part in next_one.plan()) == 2  # of the run that ended, and of the one deleted

    states = {
        one.run_id: queue.blocks.get(one.xcoms["plan", "block"]["token"]).state for one in (ended, alive, deleted)
    }
    assert states == {"ended": "released", "alive": "planned", "deleted": "released"}
    for one in (alive, next_one):
        one.settle()
    for block in queue.blocks.each("planned"):
        queue.blocks.release(block)


@pytest.mark.parametrize("theirs", [("r1", "dag"), ("r2", "dag"), ("r1", "another")])
def test_two_airflows_leave_each_others_blocks_alone(queue: MessageQueue, theirs: tuple[str, str]) -> None:
    """Also if their DAGs and their runs have the same names."""
    here, there = Airflow("here"), Airflow("there")
    fill(queue, {"a": [b"x"], "b": [b"y"]})
    elsewhere = there.run(*theirs)
    elsewhere.plan(only("a"))
    # A stream and a person named their blocks like runs of a DAG.
    keys = ("stream/orders/7", "stream:stream/orders/7", "dag/r9/plan", "by hand")
    foreign = [queue.blocks.plan(key, origins=["nobody"]) for key in keys]
    ours = here.run("r1")
    ours.airflow.runs["stream", "orders"] = ours.airflow.runs["dag", "r0"] = "failed"

    assert [part["messages"] for part in ours.plan(only("*"))] == [1], "the other's message is in flight"
    ours.settle()

    assert {queue.blocks.get(block.token).state for block in foreign} == {"planned"}
    assert queue.blocks.get(elsewhere.xcoms["plan", "block"]["token"]).state == "planned"
    elsewhere.process(0, only("a"))
    assert elsewhere.settle()["processed"] == 1
    for block in foreign:
        queue.blocks.release(block)


def test_equal_dags_of_two_airflows_are_two_servers(queue: MessageQueue) -> None:
    here, there = Airflow("here"), Airflow("there")
    fill(queue, {"a": [b"x"] * 3, "b": [b"y"], "zebra": [b"?"]})

    whole(there.run(), only("b*"))
    whole(here.run(), only("a*"), limit=[2, 1 << 20])

    found = {one.name: (one.title, one.dag_id, one.airflow, one.limit) for one in queue.inspect.servicing().servers}
    assert found == {
        f"DAG 'dag' of Airflow {name!r}, task 'plan'": (
            f"DAG 'dag' of Airflow {name!r}, task 'plan'",
            "dag",
            name,
            limit,
        )
        for name, limit in (("here", Weight(2, 1 << 20)), ("there", None))
    }
    assert queue.inspect.explain("a").sentence.endswith("next block of DAG 'dag' of Airflow 'here', task 'plan'.")
    assert "DAG 'dag' of Airflow 'there', task 'plan' takes b*" in queue.inspect.explain("zebra").sentence


def test_equal_dags_of_two_airflows_leave_each_others_pauses_alone(queue: MessageQueue) -> None:
    here, there = Airflow("here"), Airflow("there")
    fill(queue, {"a": [b"x"], "zebra": [b"?"]})
    whole(there.run(), only("a*", unrouted="pause"))
    (first,) = queue.admin.paused()

    for number, unrouted in enumerate(("pause", "skip")):
        here.run(f"r{number}").plan(only("a*", unrouted=unrouted))
        assert queue.admin.paused() == [first], "neither renewed nor ended"

    there.run("r2").plan(only("a*"))
    assert queue.admin.paused() == []


def test_equal_runs_of_two_airflows_both_send(queue: MessageQueue) -> None:
    from airflow_mq.operators.enqueue import EnqueueMessagesOperator

    operator = EnqueueMessagesOperator(task_id="send", mq_conn_id=CONN_ID, origin="a", messages=["the same"])
    sent = [Airflow(name).run("scheduled__2026-01-01").execute(operator)["count"] for name in ("here", "there", "here")]

    assert sent == [1, 1, 0] and queue.footprint("a").count == 2


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


@pytest.mark.parametrize("lease", [None, "60"])
def test_a_part_never_shortens_the_lease_of_its_block(queue: MessageQueue, run: Run, lease: str | None) -> None:
    fill(queue, {"a": [b"1"]})
    run.plan(lease=14_400)
    token = run.xcoms["plan", "block"]["token"]
    before = queue.blocks.get(token).deadline

    run.process(0, lease=lease)

    assert queue.blocks.get(token).deadline >= before
    run.settle()


def test_a_message_that_fails_fails_alone(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"raise"], "b": [b"fine", b"bad"], "aa": [b"yield"]})

    summary = run.whole()

    assert (summary["processed"], summary["failed"], summary["returned"]) == (1, 1, 2)


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

    with pytest.raises(AirflowFailException, match="takes no more outcomes: it was released; messages") as raised:
        run.process(0)
    assert "its lease" not in str(raised.value)
    with pytest.raises(AirflowFailException, match="back in their queues"):
        run.settle()


def test_a_block_that_is_deleted_meanwhile_fails_what_comes_too_late(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    queue, run_in_place = sqlite_queue, store_side.run_in_place
    fill(queue, {"a": [b"x"]})
    run.plan()

    def late(own: MessageQueue, token: str, *how: Any) -> Any:
        queue.blocks.release(token)
        with queue.store.writing() as unit:
            unit.connection.execute(f"DELETE FROM {queue.store.prefix}block")
        return run_in_place(own, token, *how)

    monkeypatch.setattr(store_side, "run_in_place", late)
    with pytest.raises(AirflowFailException, match="the ring has no block of this id; messages without an outcome"):
        run.process(0)


def test_a_block_whose_lease_ran_out_names_the_time(queue: MessageQueue, run: Run) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    fill(queue, {"a": [b"x"]})
    run.plan(lease=0.01)
    deadline = queue.blocks.get(run.xcoms["plan", "block"]["token"]).deadline
    eventually(lambda: datetime.now(timezone.utc) > deadline)

    for _ in range(2):
        with pytest.raises(AirflowFailException, match=f"its lease ran out at {deadline:%H:%M:%S} UTC; .*longer lease"):
            run.process(0)
        eventually(lambda: queue.admin.housekeep() or queue.blocks.list("planned") == [])


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


def test_all_parts_are_no_part(sqlite_queue: MessageQueue, run: Run) -> None:
    """As they arrive in a task that is not mapped, or of a plan that is."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan()
    run.xcoms["plan", "return_value"] = [run.xcoms["plan", "return_value"]]

    with pytest.raises(AirflowFailException, match=r"\(list\): expected one of .* \(\.expand\(part=plan.output\)"):
        run.process(0)


@pytest.mark.parametrize("max_attempts", [None, 5])
def test_a_task_that_is_terminated_ends_in_the_middle(
    sqlite_queue: MessageQueue, run: Run, max_attempts: int | None
) -> None:
    from airflow_mq.operators.base import TaskStopped
    from airflow_mq.operators.blocks.process import ProcessMessagesOperator
    from tests.airflow import functions

    fill(sqlite_queue, {"a": [b"1", b"2", b"3"]})
    # An attempt that begins is reported, and those before with it.
    sqlite_queue.admin.change_ring(max_attempts=max_attempts)
    run.plan()
    operator = ProcessMessagesOperator(
        task_id="process", part=run.xcoms["plan", "return_value"][0], processors=in_place(), mq_conn_id=CONN_ID
    )

    def stop(payload: bytes, origin: str) -> None:
        if payload == b"2":
            operator.on_kill()  # the handler of SIGTERM runs this in the middle of a call

    functions.stop = stop  # type: ignore[attr-defined]
    operator.processors = in_place(function="tests.airflow.functions:stop")
    try:
        with pytest.raises(TaskStopped):
            run.execute(operator, 0)
    finally:
        del functions.stop  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"^alpha \(process_0\) failed"):
        run.settle()
    assert run.xcoms["settle", "settled"]["processed"] == 1, "a finished message stays finished"
    assert run.xcoms["settle", "settled"]["returned"] == 2
    assert [one.attempts for one in sqlite_queue.inspect.peek("a")] == [1, 0]


@pytest.mark.parametrize("kind", ["operator", "decorator"])
def test_a_service_that_is_terminated_ends_in_the_middle(sqlite_queue: MessageQueue, run: Run, kind: str) -> None:
    from airflow_mq.decorators import MessageProcessorOperator
    from airflow_mq.operators.base import TaskStopped
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    fill(sqlite_queue, {"a": [b"1", b"2", b"3"]})

    def stop(payload: bytes, origin: str) -> None:
        if payload == b"2":
            try:
                operator.on_kill()  # the handler of SIGTERM runs this in the middle of a call
            except Exception:
                raise AssertionError("the author's function caught it") from None

    operator: Any = (
        ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=stop)
        if kind == "operator"
        else MessageProcessorOperator(task_id="service", mq_conn_id=CONN_ID, python_callable=stop)
    )
    operator.on_kill()  # before it processes anything
    with pytest.raises(TaskStopped):
        run.execute(operator)
    operator.on_kill()

    assert [one.payload for one in sqlite_queue.inspect.peek("a")] == [b"2", b"3"]
    assert sqlite_queue.service_queues(lambda delivery: None).processed == 2, "the ring is free at once"


def test_a_service_beside_another_one_is_skipped(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule starts the next run while the last one works: that is no failure."""
    from airflow.providers.common.compat.sdk import AirflowSkipException

    from airflow_mq.engine.queue.service import Service
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    def busy(service: Service) -> Any:
        raise Busy("ring 'default' is in use (serviced by another task)")

    fill(sqlite_queue, {"a": [b"x"]})
    monkeypatch.setattr(Service, "run", busy)

    with pytest.raises(AirflowSkipException, match=r"serviced by another task\)\. Nothing was serviced this time"):
        run.execute(ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=FUNCTION))


def test_a_service_names_the_command_that_lists_errors(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    def fail(payload: bytes, origin: str) -> None:
        raise KeyError(origin)

    fill(sqlite_queue, {"a": [b"x"]})
    warnings: list[str] = []
    monkeypatch.setattr(ServiceQueuesOperator, "log", SimpleNamespace(
        info=lambda *_: None, warning=lambda text, *args: warnings.append(text % args)
    ))  # fmt: skip

    run.execute(ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=fail))

    command = f"airflow-mq message events --name Returned --latest --limit 20 --conn-id {CONN_ID} --ring default"
    assert warnings[-1:] == [f"1 message returned without an outcome, and will be tried again: `{command}` shows why."]


def test_a_service_that_loses_its_ring_fails(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    from airflow_mq.engine.queue.service import Service
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    service = Service.run

    def lost(self: Service) -> Any:
        service(self)
        raise Busy("ring 'default' is in use (serviced by another task)")

    fill(sqlite_queue, {"a": [b"x"]})
    monkeypatch.setattr(Service, "run", lost)

    with pytest.raises(AirflowException, match="Messages since the last commit are tried again"):
        run.execute(ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=FUNCTION))
    assert run.states["service"] == "failed"


def test_the_spark_connection_may_be_a_template(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.operators.blocks import ProcessMessagesOperator

    processors = Processors([Processor("one", FUNCTION)])
    fill(sqlite_queue, {"a": [b"1"]})
    (part,) = run.plan(processors)
    operator = ProcessMessagesOperator(
        task_id="process", part=part, processors=processors, mq_conn_id=CONN_ID, spark_conn_id="spark_{{ of }}"
    )
    used: list[str] = []
    monkeypatch.setattr(ProcessMessagesOperator, "_on_spark", lambda self, *args: used.append(self._conn_id))
    operator.render_template_fields({"of": "night"})  # type: ignore[arg-type]
    run.execute(operator, 0)
    run.settle()

    assert used == ["spark_night"]


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

    assert (summary["processed"], summary["returned"]) == (2, 0)
    assert "by a person or because its lease ran out. Every outcome was" in capsys.readouterr().out


def test_a_plan_whose_answer_was_lost_is_settled_by_its_key(queue: MessageQueue, run: Run) -> None:
    fill(queue, {"a": [b"x"]})
    run.plan()
    run.xcoms.clear()

    assert run.settle()["returned"] == 1
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


def emits(run: Run, processors: Processors, rounds: int | str | None = None, **kwargs: Any) -> bool:
    """Whether a run of a DAG with these processors asks for another one."""
    from airflow.sdk import Asset

    for index in range(len(run.plan(processors, **kwargs))):
        run.process(index, processors)
    run.settle(processors=processors, outlet=Asset("ready"), rounds=rounds)
    return bool(run.events)


def test_work_of_another_dag_calls_for_no_run(queue: MessageQueue) -> None:
    airflow = Airflow()
    fill(queue, {"a": [b"x"] * 2, "b": [b"y"] * 3})

    assert emits(airflow.run("r1"), only("a*"), limit=[1, 1 << 20])
    assert not emits(airflow.run("r2"), only("a*"), limit=[1, 1 << 20]), "only messages of another DAG are left"
    assert not emits(airflow.run("r3"), only("a*"), limit=[1, 1 << 20]), "the block was empty"
    assert emits(airflow.run("r1", "mail"), only("b*"), limit=[1, 1 << 20])


def test_a_run_beside_one_that_holds_everything_calls_for_no_run(queue: MessageQueue) -> None:
    airflow = Airflow()
    fill(queue, {"a": [b"x"] * 3})
    holder = airflow.run("holder")
    holder.plan(only("a*"), limit=[1, 1 << 20])

    assert not emits(airflow.run("beside"), only("a*"), limit=[1, 1 << 20])
    assert emits(holder, only("a*"), limit=[1, 1 << 20]), "its own block moved a message, and others wait"


def test_a_message_above_the_limit_of_a_block_calls_for_no_run(queue: MessageQueue) -> None:
    queue.enqueue_messages([("a", b"elephant")], weight=Weight(5_000, 10))

    assert not emits(Airflow().run(), only("a*"), limit=[1_000, 1 << 20])
    assert queue.footprint("a").count == 1
    assert emits(Airflow().run("r2"), only("b*"), limit=[10_000, 1 << 20]) is False


def test_a_plan_that_gave_up_calls_for_no_run(
    sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*args: Any, **kwargs: Any) -> Any:
        raise Busy("another task")

    fill(sqlite_queue, {"a": [b"x"]})
    monkeypatch.setattr(Blocks, "plan", busy)

    assert not emits(run, only("a*"), patience=0)


def test_a_backlog_is_drained_by_runs_that_call_for_each_other(queue: MessageQueue) -> None:
    airflow, runs = Airflow(), 0
    fill(queue, {"a": [b"x"] * 5})

    while emits(airflow.run(f"r{runs}"), only("a*"), limit=[2, 1 << 20]):
        runs += 1
    assert runs == 2 and len(processed(queue)) == 5


@pytest.mark.parametrize("foreign", [{}, {"airflow_mq_round": "7"}, {"airflow_mq_round": None}])
def test_a_drain_ends_after_its_rounds(sqlite_queue: MessageQueue, foreign: dict[str, Any]) -> None:
    airflow = Airflow()
    fill(sqlite_queue, {"a": [b"x"] * 9})

    def chain(begins: str, rounds: int | str | None) -> int:
        """Let runs call for each other; return how many there were."""
        called_by: list[dict[str, Any]] = [foreign]
        for count in range(1, 10):
            run = airflow.run(f"{begins}{count}")
            run.called_by = called_by
            if not emits(run, only("a*"), limit=[1, 1 << 20], rounds=rounds):
                return count
            # Airflow merges events: this one arrives with one of a sender.
            called_by = [foreign, *run.extras]
        raise AssertionError("it never ends")

    assert chain("r", 3) == 3 and len(processed(sqlite_queue)) == 3
    assert chain("s", "1") == 1 and len(processed(sqlite_queue)) == 4
    assert chain("t", None) == 5 and len(processed(sqlite_queue)) == 9


@pytest.mark.parametrize("why", ["paused", "backoff"])
def test_a_drain_ends_when_what_is_left_cannot_be_serviced_now(queue: MessageQueue, why: str) -> None:
    airflow = Airflow()
    fill(queue, {"a": [b"x"], "b": [b"yield"] if why == "backoff" else [b"x"]})
    if why == "paused":
        queue.admin.pause("b", "a test")
    else:
        queue.admin.change_ring(backoff=3_600)
        queue.admin.set_origin("b", ordered=False)

    assert not emits(airflow.run(), in_place(), limit=[10, 1 << 20])
    # A message that waits for its next attempt does so outside of its queue.
    assert len(processed(queue)) == 1 and queue.footprint("b").count == (why != "backoff")


def test_settling_after_a_plan_that_was_skipped_does_nothing(queue: MessageQueue, run: Run) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException
    from airflow.sdk import Asset

    fill(queue, {"a": [b"x"]})
    run.states["plan"] = "skipped"

    with pytest.raises(AirflowSkipException, match="was skipped"):
        run.settle(processors=only("a*"), outlet=Asset("ready"))
    assert run.events == []


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


def test_service_queues_calls_a_batch_processor_with_batches(queue: MessageQueue, run: Run) -> None:
    from airflow_mq.operators.blocks import ServiceQueuesOperator

    queue.enqueue_messages("a", [b"1", b"2"])
    seen: list[Any] = []
    process = batch_processor(lambda batch: seen.append(batch.payloads))
    result = run.execute(ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor=process))
    assert (result["processed"], [*map(list, seen)]) == (2, [[b"1", b"2"]])


def test_the_decorator_names_what_takes_a_batch_processor() -> None:
    from airflow_mq.decorators import message_processor_task

    process: Any = batch_processor(lambda batch: None)
    with pytest.raises(
        ValueError, match=r"invalid processor \(BatchProcessor\): for batches use ServiceQueuesOperator"
    ):
        message_processor_task(process)


def test_service_queues_refuses_an_unknown_function(queue: MessageQueue, run: Run) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from airflow_mq.operators.blocks import ServiceQueuesOperator

    operator = ServiceQueuesOperator(task_id="service", mq_conn_id=CONN_ID, processor="tests.airflow.functions:missing")
    with pytest.raises(AirflowFailException, match="cannot load function"):
        run.execute(operator)


def test_the_last_plan_for_unrouted_origins_pauses_them_as_well(queue: MessageQueue, run: Run) -> None:
    fill(queue, {f"zebra-{number}": [b"?"] for number in range(6)})

    assert run.plan(limit=[2, 1 << 20]) == []

    block = queue.blocks.get(run.xcoms["plan", "block"]["token"])
    assert {*block.origins} <= {pause.origin for pause in queue.admin.paused()}
    assert run.settle()["returned"] == len(block.origins) > 0


def test_an_exchange_that_cannot_be_opened_does_not_fail_a_settled_block(sqlite_queue: MessageQueue, run: Run) -> None:
    from airflow.sdk import ObjectStoragePath

    fill(sqlite_queue, {"a": [b"x"]})
    run.plan()
    run.process(0)

    assert run.settle(exchange=ObjectStoragePath("s3://gone@bucket/queues"))["processed"] == 1
    assert run.xcoms["settle", "settled"]["processed"] == 1
