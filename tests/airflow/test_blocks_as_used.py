"""Blocks, services and sensors as authors use them: Airflow renders and runs them."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.charging import DAY
from airflow_mq.words import when
from tests.airflow.functions import SEEN
from tests.airflow.stage import fill, processed
from tests.airflow.test_dags import RunDag, dags_folder, run_dag
from tests.proofs.model.clock import SECOND, stopped_clock

__all__ = ["dags_folder", "run_dag"]
pytestmark = [pytest.mark.airflow, pytest.mark.slow]


def ended(run: Any) -> dict[str, list[str]]:
    """Return the states of the tasks of a run; a mapped task has several."""
    found: dict[str, list[str]] = {}
    for ti in sorted(run.get_task_instances(), key=lambda ti: ti.map_index):
        found.setdefault(ti.task_id, []).append(str(ti.state))
    return found


def given(run: Any, task_id: str, map_index: int = -1) -> Any:
    """Return what a task of a run returned."""
    (ti,) = (ti for ti in run.get_task_instances() if (ti.task_id, ti.map_index) == (task_id, map_index))
    return ti.xcom_pull(task_ids=task_id, map_indexes=map_index)


@pytest.mark.uses("PlanBlockOperator", "ProcessMessagesOperator", "SettleBlockOperator")
def test_the_tasks_of_a_block(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a": [b"1"] * 4, "b": [b"2"]})

    run = run_dag(
        """
        from airflow_mq.operators.blocks import PlanBlockOperator, ProcessMessagesOperator, SettleBlockOperator

        @task
        def gives(what):
            return what

        params = {"conn": "mq_stage", "ring": "default", "lease": 5000, "wait": 2, "share": "1", "plan": "plan", "none": ""}
        rules = {"processors": Processors(ALL), "mq_conn_id": "{{ params.conn }}", "ring": "{{ params.ring }}"}
        with DAG("scene", schedule=None, params=params):
            limit, nothing = gives([3, 1 << 20]), gives.override(task_id="nothing")(None)
            plan = PlanBlockOperator(task_id="plan", limit=limit, lease="{{ params.lease }}",
                                     patience="{{ params.wait }}", share_below="{{ params.share }}", **rules)
            process = ProcessMessagesOperator.partial(
                task_id="process", plan_task_id="{{ params.plan }}", spark_conn_id="{{ params.none }}",
                lease=gives.override(task_id="longer")("6000"), exchange=nothing, **rules
            ).expand(part=plan.output)
            settle = SettleBlockOperator(task_id="settle", plan_task_id="{{ params.plan }}", exchange=nothing,
                                         process_task_id=gives.override(task_id="whose")("process"), **rules)
            # Without a limit, the ring's; nothing processes these parts.
            rest = PlanBlockOperator(task_id="rest", limit=nothing, lease=nothing, patience="{{ params.none }}",
                                     share_below=nothing, **rules)
            settles = SettleBlockOperator.partial(
                task_id="settles", mq_conn_id="mq_stage"
            ).expand(plan_task_id=["rest", "plan"])
            process >> settle >> rest >> settles
            mapped = PlanBlockOperator.partial(task_id="mapped", lease=1, **rules).expand(limit=[[1, 1000], "[2, 1000]"])
            settles >> mapped
        """
    )

    assert run.state == "success"
    parts, states = given(run, "plan"), ended(run)
    assert {state for found in states.values() for state in found} == {"success"}
    assert [len(states[name]) for name in ("process", "settles", "mapped")] == [len(parts), 2, 2]
    assert sum(part["messages"] for part in parts) == 3
    assert given(run, "settle")["processed"] == 3
    assert sum(part["messages"] for part in given(run, "rest")) == 2
    assert given(run, "settles", 0)["returned"] == 2
    blocks = {block.key: block for block in sqlite_queue.blocks.list()}
    plan = blocks[f"here:scene/{run.run_id}/plan"]
    assert (plan.lease, tuple(plan.limit)) == (5000, (3, 1 << 20))
    assert blocks[f"here:scene/{run.run_id}/rest"].limit == sqlite_queue.config.service_weight
    assert [blocks[f"here:scene/{run.run_id}/mapped[{index}]"].limit.time for index in (0, 1)] == [1, 2]


@pytest.mark.parametrize(("wrong", "found"), [("plan", {"parts", "settle"}), ("process", {"settle"})])
def test_a_task_that_the_dag_does_not_have_is_named(
    run_dag: RunDag, sqlite_queue: MessageQueue, capfd: pytest.CaptureFixture[str], wrong: str, found: set[str]
) -> None:
    """Else the run succeeds, although nothing is processed or a part fails: in a group, each id begins with its name."""
    fill(sqlite_queue, {"a": [b"1"]})

    run = run_dag(
        f"""
        from airflow.sdk import TaskGroup
        from airflow_mq.operators.blocks import PlanBlockOperator, SettleBlockOperator

        named = {{"plan": {{"plan_task_id": "group.plan"}}, "process": {{"process_task_id": "group.parts"}}}}
        del named["{wrong}"]
        with DAG("scene", schedule=None), TaskGroup("group"):
            plan = PlanBlockOperator(task_id="plan", processors=Processors(ALL), mq_conn_id="mq_stage")

            @task.message_processor(processors=Processors(ALL), mq_conn_id="mq_stage", **named.get("plan", {{}}))
            def parts(payload):
                pass

            settle = SettleBlockOperator(task_id="settle", mq_conn_id="mq_stage",
                                         **named.get("plan", {{}}), **named.get("process", {{}}))
            [plan, parts.expand(part=plan.output)] >> settle
        """
    )

    assert run.state == "failed"
    assert {name.rpartition(".")[2] for name, ends in ended(run).items() if "failed" in ends} == found
    assert f"invalid {wrong}_task_id '{wrong}': this DAG has no such task" in capfd.readouterr().out


def test_a_value_that_is_no_number_is_named(run_dag: RunDag, capfd: pytest.CaptureFixture[str]) -> None:
    run = run_dag(
        """
        from airflow_mq.operators.blocks import PlanBlockOperator

        with DAG("scene", schedule=None, params={"soon": "soon"}):
            for name in ("limit", "lease", "patience", "share_below"):
                PlanBlockOperator(task_id=name, processors=Processors(ALL), mq_conn_id="mq_stage",
                                  **{name: "{{ params.soon }}"})
        """
    )

    assert {state for states in ended(run).values() for state in states} == {"failed"}
    printed = capfd.readouterr()
    for name in ended(run):
        assert f"invalid {name} 'soon'" in printed.out + printed.err


@pytest.mark.uses("ServiceQueuesOperator")
def test_a_task_that_services(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    for ring in ("one", "two"):
        sqlite_queue.admin.create_ring(ring)
    fill(sqlite_queue, {"a": [b"1"] * 9})

    run = run_dag(
        """
        from airflow_mq.operators.blocks import ServiceQueuesOperator

        @task
        def gives(what):
            return what

        common = {"mq_conn_id": "{{ params.conn }}", "processor": F}
        with DAG("scene", schedule=None, params={"conn": "mq_stage", "ring": "default", "none": "", "time": 2}):
            ServiceQueuesOperator(task_id="template", ring="{{ params.ring }}",
                                  limit="[{{ params.time }}, 1048576]", **common) \\
            >> ServiceQueuesOperator(task_id="of_xcom", limit=gives([3, 1 << 20]), **common) \\
            >> ServiceQueuesOperator(task_id="of_none", ring="{{ params.none }}",
                                     limit=gives.override(task_id="nothing")(None), **common)
            ServiceQueuesOperator.partial(task_id="mapped", **common).expand(
                ring=gives.override(task_id="rings")(["one", "two"]))
            ServiceQueuesOperator.partial(task_id="of_nothing", **common).expand(
                ring=gives.override(task_id="no_rings")([]))
        """
    )

    assert run.state == "success"
    assert [given(run, name)["processed"] for name in ("template", "of_xcom", "of_none")] == [2, 3, 4]
    states = ended(run)
    assert states["mapped"] == ["success"] * 2 and states["of_nothing"] == ["skipped"]
    assert len(SEEN) == 9


@pytest.mark.uses("MessageProcessorOperator")
def test_a_function_that_processes(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a": [b"1"] * 5, "b": [b"2"] * 2})

    run = run_dag(
        """
        from airflow_mq.operators.blocks import PlanBlockOperator, SettleBlockOperator

        @task
        def gives(what):
            return what

        params = {"conn": "mq_stage", "time": 1, "plan": "plan", "tag": "template"}
        common = {"mq_conn_id": "{{ params.conn }}", "retries": 0}

        @task.message_processor(limit="[{{ params.time }}, 1048576]", plan_task_id="{{ params.plan }}",
                                processors=Processors(ALL).to_json(), **common)
        def process(payload, origin, message, tag=None):
            from tests.airflow.functions import SEEN
            SEEN.append((tag, message.origin))

        with DAG("scene", schedule=None, params=params):
            one = process.override(task_id="template")(tag="{{ params.tag }}")
            two = process.override(task_id="of_xcom")(tag=gives("xcom"))
            three = process.override(task_id="of_none")(tag=gives.override(task_id="nothing")(None))
            mapped = process.override(task_id="mapped", max_active_tis_per_dag=1).expand(
                tag=gives.override(task_id="tags")(["m0", "m1"]))
            plan = PlanBlockOperator(task_id="plan", processors=Processors(ALL), mq_conn_id="mq_stage", share_below=1)
            parts = process.override(task_id="parts").partial(tag="{{ params.tag }}").expand(part=plan.output)
            settle = SettleBlockOperator(task_id="settle", process_task_id="parts", mq_conn_id="mq_stage")
            one >> two >> three >> mapped >> plan >> parts >> settle
        """
    )

    assert run.state == "success"
    assert [tag for tag, _ in SEEN[:3]] == ["template", "xcom", None]
    assert sorted(tag for tag, _ in SEEN[3:5]) == ["m0", "m1"], "Airflow runs mapped tasks in any order"
    assert [tag for tag, _ in SEEN[5:]] == ["template"] * 2
    assert given(run, "settle")["processed"] == 2 and len(processed(sqlite_queue)) == 7


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=pytest.mark.uses(name)) for name in ("QueueReadySensor", "SetAsideSensor")]
)
def test_a_task_that_waits(run_dag: RunDag, sqlite_queue: MessageQueue, kind: str, deferrable: bool) -> None:
    from airflow_mq import Weight

    sqlite_queue.admin.create_ring("night")
    with MessageQueue(sqlite_queue.store.address, "night") as night:
        for queue in (sqlite_queue, night):
            queue.enqueue_messages("a", [b"1"], weight=Weight(10**9, 1))
            queue.blocks.settle(queue.blocks.plan())
            fill(queue, {"b": [b"2"]})

    run = run_dag(
        f"""
        from airflow_mq.sensors import {kind} as Sensor

        @task
        def gives(what):
            return what

        common = {{"mq_conn_id": "{{{{ params.conn }}}}", "deferrable": {deferrable}, "poke_interval": 0.1}}
        with DAG("scene", schedule=None, params={{"conn": "mq_stage", "ring": "night"}}):
            Sensor(task_id="template", ring="{{{{ params.ring }}}}", **common)
            Sensor(task_id="of_xcom", ring=gives("night"), **common)
            Sensor(task_id="of_none", ring=gives.override(task_id="nothing")(None), **common)
            Sensor.partial(task_id="mapped", **common).expand(ring=gives.override(task_id="rings")(["night", "default"]))
            Sensor.partial(task_id="of_nothing", **common).expand(ring=gives.override(task_id="no_rings")([]))
        """
    )

    assert run.state == "success"
    rings = [given(run, name)["ring"] for name in ("template", "of_xcom", "of_none")]
    assert rings == ["night", "night", "default"]
    assert [given(run, "mapped", index)["ring"] for index in (0, 1)] == ["night", "default"]
    assert ended(run)["of_nothing"] == ["skipped"]


@pytest.mark.parametrize("kind", ["QueueReadySensor", "SetAsideSensor"])
def test_a_task_that_is_deferred(
    run_dag: RunDag, sqlite_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Messages come while its trigger waits, and are gone before the next task looks."""
    from airflow_mq import Weight, sensors, triggers
    from airflow_mq.engine.rules.errors import StoreUnreachable, UnknownRing

    for ring in ("night", "lost", "away"):
        sqlite_queue.admin.create_ring(ring)
    looks: list[str] = []
    read_ring = triggers.read_ring

    def look(queue: MessageQueue) -> triggers.Reading:
        looks.append(queue.ring)
        if queue.ring == "lost":
            raise UnknownRing()
        if looks.count(queue.ring) % 2:
            # The trigger looks again.
            return read_ring(queue)
        queue.enqueue_messages("a", [b"1", b"2"], weight=Weight(10**9, 1))
        queue.blocks.settle(queue.blocks.plan())
        fill(queue, {"b": [b"3"]})
        reading = read_ring(queue)
        queue.service_queues(lambda delivery: None)
        queue.set_aside.discard([one.address for one in queue.set_aside.list()], "the test is over")
        return reading

    def look_first(queue: MessageQueue) -> triggers.Reading:
        if queue.ring == "away":
            raise StoreUnreachable()
        return read_ring(queue)

    monkeypatch.setattr(triggers, "read_ring", look)
    # A sensor reads by itself before it defers.
    monkeypatch.setattr(sensors, "read_ring", look_first)

    run = run_dag(
        f"""
        from airflow_mq.sensors import {kind} as Sensor

        @task
        def gives(what):
            return what

        waits = {{"mq_conn_id": "{{{{ params.conn }}}}", "timeout": 600}}
        with DAG("scene", schedule=None, params={{"conn": "mq_stage", "ring": "night"}},
                 default_args={{"poke_interval": 0.2, "deferrable": True}}):
            template = Sensor(task_id="template", ring="{{{{ params.ring }}}}", **waits)
            assert (template.poke_interval, template.deferrable) == (0.2, True)
            Sensor(task_id="of_xcom", ring=gives("night"), **waits)
            Sensor(task_id="of_none", ring=gives.override(task_id="nothing")(None), **waits)
            Sensor.partial(task_id="mapped", **waits).expand(ring=gives.override(task_id="rings")(["night", "default"]))
            Sensor(task_id="lost", ring="lost", **waits)
            Sensor(task_id="away", ring="away", **waits)
        """
    )

    states = ended(run)
    assert states.pop("lost") == ["failed"] and {state for found in states.values() for state in found} == {"success"}
    assert [given(run, name)["ring"] for name in ("template", "of_xcom", "of_none")] == ["night", "night", "default"]
    assert [given(run, "mapped", index)["ring"] for index in (0, 1)] == ["night", "default"]
    assert [looks.count(ring) for ring in ("night", "default", "lost", "away")] == [6, 4, 1, 2], (
        "each of them was deferred"
    )


def test_a_block_in_one_call(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    """Airflow cannot map a group that maps tasks itself."""
    fill(sqlite_queue, {"a": [b"1"] * 4, "b": [b"2"] * 2})

    run = run_dag(
        """
        import pytest
        from airflow.sdk import task_group

        @task
        def gives(what):
            return what

        params = {"conn": "mq_stage", "ring": "default", "lease": 5000, "wait": 2, "share": "1", "none": ""}
        common = {"processors": ALL, "mq_conn_id": "{{ params.conn }}"}
        with DAG("scene", schedule=None, params=params):
            first = block("first", ring="{{ params.ring }}", limit="[3, 1048576]", lease="{{ params.lease }}",
                          patience="{{ params.wait }}", share_below="{{ params.share }}",
                          spark_conn_id="{{ params.none }}", exchange="{{ params.none }}", **common)
            second = block("second", ring=gives("default"), limit=gives.override(task_id="limit")([2, 1 << 20]), **common)
            nothing = gives.override(task_id="nothing")(None)
            third = block("third", ring=nothing, limit=nothing, lease=nothing, patience=nothing, share_below=nothing,
                          exchange=nothing, **common)
            first >> second >> third

        @task_group
        def mapped(ring):
            block("inner", ring=ring, **common)

        with DAG("other", schedule=None), pytest.raises(NotImplementedError, match="expanded task group"):
            mapped.expand(ring=["default"])
        """
    )

    assert run.state == "success"
    assert [given(run, f"{name}.settle")["processed"] for name in ("first", "second", "third")] == [3, 2, 1]


def test_a_block_in_a_dag_whose_tasks_push_no_results(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    fill(sqlite_queue, {"a": [b"1"]})

    run = run_dag(
        """
        with DAG("scene", schedule=None, default_args={"do_xcom_push": False}):
            block(processors=ALL, mq_conn_id="mq_stage")
        """
    )

    assert run.state == "success"
    assert sqlite_queue.footprint("a").count == 0


def test_notifiers(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    from airflow_mq import Weight

    sqlite_queue.admin.create_ring("night")
    sqlite_queue.enqueue_messages("a", [b"1"] * 3, weight=Weight(10**9, 1))
    with MessageQueue(sqlite_queue.store.address, "night") as night:
        night.enqueue_messages("b", [b"1"], weight=Weight(10**9, 1))
        night.blocks.settle(night.blocks.plan())

    run = run_dag(
        """
        from airflow_mq.notifications import SetAsideNotifier, StarvingNotifier
        from tests.airflow.functions import SEEN

        @task
        def gives(what):
            return what

        def notifiers(ring):
            common = {"to": SEEN.append, "mq_conn_id": "{{ params.conn }}", "ring": ring}
            return [SetAsideNotifier(**common), StarvingNotifier(most_wait=0, oldest=0, **common)]

        with DAG("scene", schedule=None, params={"conn": "mq_stage", "ring": "night"}):
            one = block(processors=ALL, mq_conn_id="mq_stage", notifiers=notifiers("{{ params.ring }}"))
            two = gives.override(task_id="template", on_success_callback=notifiers("{{ params.ring }}"))(1)
            night, none = gives.override(task_id="night")("night"), gives.override(task_id="none")(None)
            three = gives.override(task_id="of_xcom", on_success_callback=notifiers(night))(1)
            four = gives.override(task_id="of_none", on_success_callback=notifiers(none))(1)
            five = gives.override(task_id="mapped", on_success_callback=notifiers("night")).expand(what=[1, 2])
            [night, none] >> one >> two >> three >> four >> five
        """
    )

    assert run.state == "success"
    told = [str(text) for text in SEEN]
    assert [text.partition(":")[0] for text in told if "set-aside" in text] == [
        *["1 set-aside message on ring 'night'"] * 3, "3 set-aside messages on ring 'default'",
        *["1 set-aside message on ring 'night'"] * 2,
    ]  # fmt: skip
    assert all("set-aside" in text for text in told), "no queue waits any more"


def test_a_block_and_its_notifiers_share_a_ring(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    from airflow_mq import Weight

    for ring in ("named", "default_args"):
        sqlite_queue.admin.create_ring(ring)
        with MessageQueue(sqlite_queue.store.address, ring) as queue:
            queue.enqueue_message("a", b"1", weight=Weight(10**9, 1))
    sqlite_queue.enqueue_message("a", b"left alone")

    run = run_dag(
        """
        from airflow_mq.notifications import SetAsideNotifier
        from tests.airflow.functions import SEEN

        notify = SetAsideNotifier(SEEN.append)
        given = {"mq_conn_id": "mq_stage", "ring": "default_args"}
        with DAG("scene", schedule=None, default_args=given):
            one = block("one", processors=ALL, notifiers=notify)
            two = block("two", processors=ALL, notifiers=notify, ring="named")
            one >> two
        """
    )

    assert run.state == "success"
    rings = [f"1 set-aside message on ring {ring!r}" for ring in ("default_args", "named")]
    assert [str(text).partition(":")[0] for text in SEEN] == rings
    assert sqlite_queue.footprint("a").count == 1


def test_a_notifier_of_budgets(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    from airflow_mq import Weight

    sqlite_queue.admin.create_ring("night")
    with MessageQueue(sqlite_queue.store.address, "night") as night:
        night.admin.set_origin("acme", rate="2h/day", burst="1m")
        night.enqueue_messages("acme", [b"1"] * 3, weight=Weight(60_000, 1))
        night.service_queues(lambda delivery: None)
        assert night.footprint("acme").count == 2

    run = run_dag(
        """
        from airflow_mq.notifications import BudgetNotifier
        from tests.airflow.functions import SEEN

        @task
        def gives(what):
            return what

        def notifiers(ring):
            common = {"to": SEEN.append, "mq_conn_id": "{{ params.conn }}", "ring": ring}
            return [BudgetNotifier(**common), BudgetNotifier(within="1h", **common)]

        with DAG("scene", schedule=None, params={"conn": "mq_stage", "ring": "night"}):
            one = gives.override(task_id="template", on_success_callback=notifiers("{{ params.ring }}"))(1)
            night, none = gives.override(task_id="night")("night"), gives.override(task_id="none")(None)
            two = gives.override(task_id="of_xcom", on_success_callback=notifiers(night))(1)
            three = gives.override(task_id="of_none", on_success_callback=notifiers(none))(1)
            four = gives.override(task_id="mapped", on_success_callback=notifiers("night")).expand(what=[1, 2])
            [night, none] >> one >> two >> three >> four
        """
    )

    assert run.state == "success"
    told = [str(text) for text in SEEN]
    assert [text.partition(":")[0] for text in told] == ["Budgets of ring 'night' are used up"] * 8
    assert all("acme" in text and "its queues wait until" in text for text in told)


def test_a_notifier_of_budgets_reports_an_exhaustion_in_the_run_of_its_dag(
    run_dag: RunDag, sqlite_queue: MessageQueue
) -> None:
    from airflow_mq import Weight

    sqlite_queue.admin.set_origin("acme", rate="1m/day", burst="1m")
    sqlite_queue.enqueue_messages("acme", [b"1"] * 3, weight=Weight(60_000, 1))

    def run() -> list[object]:
        """Run the DAG, and return what the processor and the notifier were given."""
        SEEN.clear()
        made = run_dag(
            """
            from airflow_mq.notifications import BudgetNotifier
            from airflow_mq.operators.blocks import ServiceQueuesOperator
            from airflow_mq.operators.queues import HousekeepingOperator
            from tests.airflow.functions import SEEN

            notify = BudgetNotifier(SEEN.append, within=3600, mq_conn_id="mq_stage")
            common = {"mq_conn_id": "mq_stage", "on_success_callback": notify}
            with DAG("scene", schedule=None):
                service = ServiceQueuesOperator(task_id="service", processor=F, limit=[3_600_000, 1 << 30], **common)
                HousekeepingOperator(task_id="before", **common) >> service
            """
        )
        assert made.state == "success"
        return [*SEEN]

    # The task before finds a full budget. The service processes the one message that the burst covers.
    message, text = run()
    (state,) = sqlite_queue.inspect.budgets(exhausted=True)
    assert message == (b"1", "acme") and state.exhausted_at is not None and state.wakes_at is not None
    assert str(text).splitlines()[1] == (
        f"  acme: 0ms of 1min is left, exhausted at {when(state.exhausted_at)}, its queues wait until "
        f"{when(state.wakes_at)}"
    )
    with stopped_clock() as clock:
        clock.now = int(state.exhausted_at.timestamp() * SECOND) + 3_599 * SECOND
        assert len(run()) == 2, "both tasks report it"
        clock.now += 2 * SECOND
        assert run() == []


def test_a_notifier_publishes_closed_days_in_the_run_of_its_dag(run_dag: RunDag, sqlite_queue: MessageQueue) -> None:
    sqlite_queue.admin.create_ring("night")
    night = MessageQueue(sqlite_queue.store, "night")

    def run(first_task: str) -> list[str]:
        """Run the DAG, and return what its notifiers were given."""
        SEEN.clear()
        made = run_dag(
            f"""
            from airflow_mq.notifications import DayClosedNotifier
            from airflow_mq.operators.queues import HousekeepingOperator
            from tests.airflow.functions import SEEN

            @task
            def gives(what):
                return what

            def notify(ring):
                common = {{"mq_conn_id": "{{{{ params.conn }}}}", "ring": ring}}
                return [DayClosedNotifier(SEEN.append, days=2, **common)]

            with DAG("scene", schedule=None, params={{"conn": "mq_stage", "ring": "night"}}):
                before = gives.override(task_id="before", on_success_callback=notify("{{{{ params.ring }}}}"))(1)
                {first_task}
                name, none = gives.override(task_id="name")("night"), gives.override(task_id="none")(None)
                after = gives.override(task_id="after", on_success_callback=notify(name))(1)
                other = gives.override(task_id="other", on_success_callback=notify(none))(1)
                before >> close >> [name, none] >> after >> other
            """
        )
        assert made.state == "success"
        return [str(text) for text in SEEN]

    def text() -> str:
        lines = [f"  {one.day}  {one.hash.hex()}" for one in night.inspect.bill_headers()[-2:]]
        return "\n".join(["Headers of the bills of ring 'night':", *lines])

    with stopped_clock() as clock:
        # A process with the real clock closes the last day later.
        today = int(time.time() * SECOND)
        clock.now = today - 4 * DAY
        fill(night, {"acme": [b"1"] * 2, "bolt": [b"2"]})
        night.service_queues(lambda delivery: None)
        clock.now = today - DAY
        # Nothing is closed before the housekeeping of the DAG. The ring of the last task has no bills.
        close = 'HousekeepingOperator(task_id="close", ring="night", mq_conn_id="mq_stage", on_success_callback=notify("night"))'
        found = run(f"close = {close}")
        assert len(night.inspect.bill_headers()) == 3 and found == [text()] * 2
    first = text()
    # Another process closes the next day.
    command = ["ring", "housekeep", "--store", night.store.address.uri, "--ring", "night"]
    subprocess.run([sys.executable, "-m", "airflow_mq", *command], check=True)
    assert len(night.inspect.bill_headers()) > 3 and text() != first
    assert run('close = gives.override(task_id="close")(1)') == [text()] * 2


def marked(module: ModuleType) -> set[str]:
    """Return the classes in the marks `uses` of a module's tests."""
    marks = [mark for test in vars(module).values() for mark in getattr(test, "pytestmark", ())]
    marks += [
        inner
        for mark in marks
        if mark.name == "parametrize"
        for case in mark.args[1]
        for inner in getattr(case, "marks", ())
    ]
    return {name for mark in marks if mark.name == "uses" for name in mark.args}


def test_each_class_of_the_provider_is_used_in_all_ways() -> None:
    """A new class needs a test that has it in its mark `uses`, or that runs it here."""
    from airflow_mq.provider import get_provider_info
    from tests.airflow import test_as_used

    info: Any = get_provider_info()
    modules = [
        import_module(name) for kind in ("operators", "sensors") for one in info[kind] for name in one["python-modules"]
    ]
    exported = {
        name
        for module in modules
        for name, found in vars(module).items()
        if name.endswith(("Operator", "Sensor")) and found.__module__.startswith(module.__name__) and name[0] != "_"
    }
    here = sys.modules[__name__]
    assert exported | {"MessageProcessorOperator"} == marked(test_as_used) | marked(here)
    others = [*info["notifications"], *(one["class-name"] for one in info["task-decorators"])]
    assert [
        name for name in others if name.rpartition(".")[2].removesuffix("_task") not in Path(__file__).read_text()
    ] == []


def test_default_arguments_hold_for_what_a_block_does_not_name() -> None:
    from airflow.sdk import DAG

    from airflow_mq.block import block
    from airflow_mq.processors import Processor

    def arguments(**named: Any) -> list[Any]:
        with DAG("scene", schedule=None, default_args=named.pop("of_dag", {})) as dag:
            block(processors=[Processor("all", "tests.airflow.functions:work")], **named)
        plan, process, settle = (dag.get_task(f"block.{name}") for name in ("plan", "process", "settle"))
        # As the task's process sees it.
        job = process.unmap({"part": {}})
        return [
            plan.limit, plan.lease, plan.share_below, plan.patience, job.spark_conn_id, job.lease,
            job.exchange, settle.rounds, settle.trigger_rule,
        ]  # fmt: skip

    given = {"limit": "10s/1MiB", "lease": 900, "share_below": 7, "patience": 5, "spark_conn_id": "yarn", "rounds": 3,
             "exchange": "s3://queues", "trigger_rule": "all_success"}  # fmt: skip
    theirs = ["10s/1MiB", 900, 7, 5, "yarn", 900, "s3://queues", 3, "all_done"]
    assert arguments() == [None, None, 10_000, 60.0, "spark_default", None, None, None, "all_done"]
    assert arguments(of_dag=given) == arguments(default_args=given) == theirs
    named = {"lease": 60, "spark_conn_id": "k8s", "patience": 0}
    assert arguments(of_dag=given, **named) == ["10s/1MiB", 60, 7, 0, "k8s", 60, "s3://queues", 3, "all_done"]


def test_the_arguments_of_the_processing_task_are_the_last_word() -> None:
    """Else Airflow raises a TypeError for those that a block gives it as well."""
    from airflow.sdk import DAG

    from airflow_mq.block import block
    from airflow_mq.processors import Processor

    given = {"map_index_template": "{{ task.part['messages'] }}", "lease": 60}
    with DAG("scene", schedule=None) as dag:
        block(processors=[Processor("all", "tests.airflow.functions:work")], lease=900, process_args=given)
    job = dag.get_task("block.process").unmap({"part": {}})
    assert (job.map_index_template, job.lease, dag.get_task("block.plan").lease) == (*given.values(), 900)


def test_a_number_as_text_is_refused_where_a_notifier_is_made() -> None:
    from airflow_mq.notifications import SetAsideNotifier, StarvingNotifier

    for notifier, name in (
        (SetAsideNotifier, "at_least"),
        (StarvingNotifier, "most_wait"),
        (StarvingNotifier, "blocks"),
    ):
        with pytest.raises(ValueError, match=f"invalid value '3' for {name}: expected a whole number"):
            notifier(**{name: "3"})


@pytest.mark.parametrize("days", [0, -1])
def test_a_notifier_of_no_day_is_refused(days: int) -> None:
    from airflow_mq.notifications import DayClosedNotifier, StarvingNotifier

    with pytest.raises(ValueError, match=f"invalid days {days}: expected 1 or more"):
        DayClosedNotifier(days=days)
    with pytest.raises(ValueError, match=f"invalid .*{days}.*: expected"):
        StarvingNotifier(blocks=days)
