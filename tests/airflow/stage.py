"""DAG runs without an Airflow: operators execute with a task instance that keeps XComs and states."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow_mq import MessageQueue
from airflow_mq.installation import VARIABLE
from airflow_mq.processors import Processor, Processors

CONN_ID = "mq_stage"
#: The id of an Airflow on the stage.
INSTALLATION = "here"
FUNCTION = "tests.airflow.functions:process"


def in_place(*, unrouted: str = "pause", function: str = FUNCTION) -> Processors:
    """Return two processors: `a*` in two parts, and `b*`."""
    return Processors(
        [
            Processor("alpha", function, origins=("a*",), where="in place", split=2),
            Processor("beta", function, origins=("b*",), where="in place"),
        ],
        unrouted=unrouted,
    )


class Airflow:
    """The part of Airflow that tasks query: XComs, states of tasks, and DAG runs."""

    def __init__(self, installation: str = INSTALLATION) -> None:
        self.runs: dict[tuple[str, str], str] = {}
        self.installation = installation

    def run(self, run_id: str = "r1", dag_id: str = "dag") -> Run:
        self.runs[dag_id, run_id] = "running"
        return Run(self, dag_id, run_id)


class Run:
    """A DAG run with a block."""

    def __init__(self, airflow: Airflow, dag_id: str, run_id: str) -> None:
        self.airflow, self.dag_id, self.run_id = airflow, dag_id, run_id
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.states: dict[str, str] = {}
        self.events: list[Any] = []
        #: Extras of the events that it emitted, and of those that started it.
        self.extras: list[dict[str, Any]] = []
        self.called_by: list[dict[str, Any]] = []

    def context(self, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return the context that `execute` receives."""
        run = self

        class TaskInstance(SimpleNamespace):
            def xcom_push(self, key: str, value: Any) -> None:
                run.xcoms[task_id, key] = value

            def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
                return run.xcoms.get((task_ids, key))

            def get_task_states(
                self, dag_id: str, task_ids: list[str], run_ids: list[str]
            ) -> dict[str, dict[str, str]]:
                assert (dag_id, run_ids) == (run.dag_id, [run.run_id])
                known = {name: state for name, state in run.states.items() if name.partition("_")[0] in task_ids}
                return {run.run_id: known} if known else {}

            def get_dr_count(
                self, dag_id: str, run_ids: list[str] | None = None, states: list[str] | None = None
            ) -> int:
                return sum(
                    1 for (dag, name), state in run.airflow.runs.items()
                    if dag == dag_id and (run_ids is None or name in run_ids) and (states is None or state in states)
                )  # fmt: skip

        ti = TaskInstance(dag_id=self.dag_id, run_id=self.run_id, task_id=task_id, map_index=map_index)
        emitted = SimpleNamespace(add=self._emit)
        return {
            "ti": ti, "dag": SimpleNamespace(has_task=bool), "dag_run": SimpleNamespace(triggering_user_name=None),
            "outlet_events": _Always(emitted),
            "triggering_asset_events": {"any": [SimpleNamespace(extra=extra) for extra in self.called_by]},
        }  # fmt: skip

    def _emit(self, asset: Any, extra: dict[str, Any]) -> None:
        self.events.append(asset)
        self.extras.append(extra)

    def execute(self, operator: Any, map_index: int = -1) -> Any:
        """Execute an operator as its task, and record the state of that task. Raise its error."""
        from airflow.providers.common.compat.sdk import AirflowSkipException

        name = operator.task_id if map_index < 0 else f"{operator.task_id}_{map_index}"
        name_of_id, own = f"AIRFLOW_VAR_{VARIABLE.upper()}", self.airflow.installation
        # A patch empties the environment for a moment, and other threads may run tasks.
        is_set = os.environ.get(name_of_id) == own
        try:
            with nullcontext() if is_set else patch.dict(os.environ, {name_of_id: own}):
                value = operator.execute(self.context(operator.task_id, map_index))
        except BaseException as error:
            self.states[name] = "skipped" if isinstance(error, AirflowSkipException) else "failed"
            raise
        self.states[name] = "success"
        self.xcoms[operator.task_id, "return_value"] = value
        return value

    # The three tasks of a block.

    def plan(self, processors: Processors | None = None, **kwargs: Any) -> list[Any]:
        from airflow_mq.operators.blocks import PlanBlockOperator

        operator = PlanBlockOperator(
            task_id="plan", processors=processors or in_place(), mq_conn_id=CONN_ID, share_below=1, **kwargs
        )
        return list(self.execute(operator))

    def process(self, index: int, processors: Processors | None = None, **kwargs: Any) -> None:
        from airflow_mq.operators.blocks import ProcessMessagesOperator

        part = self.xcoms["plan", "return_value"][index]
        operator = ProcessMessagesOperator(
            task_id="process", part=part, processors=processors or in_place(), mq_conn_id=CONN_ID, **kwargs
        )
        self.execute(operator, index)

    def settle(self, **kwargs: Any) -> Any:
        from airflow_mq.operators.blocks import SettleBlockOperator

        return self.execute(SettleBlockOperator(task_id="settle", mq_conn_id=CONN_ID, **kwargs))

    def whole(self, **kwargs: Any) -> Any:
        """Plan a block, process every part, and settle it."""
        for index in range(len(self.plan(**kwargs))):
            self.process(index)
        return self.settle()

    def quietly(self, task: str) -> None:
        """Run one of the tasks `plan`, `p0`, `p1`, `p2` and `settle`; ignore its error."""
        with suppress(Exception):
            if task.startswith("p") and task != "plan":
                if len(self.xcoms.get(("plan", "return_value"), ())) > int(task[1:]):
                    self.process(int(task[1:]))
            else:
                getattr(self, task)()


class _Always:
    """A mapping of every key to one value. Aliases of assets in Airflow 3.1 have no hash."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, key: Any) -> Any:
        return self.value


def fill(queue: MessageQueue, messages: Mapping[str, Iterable[bytes]]) -> None:
    """Enqueue messages by origin."""
    for origin, payloads in messages.items():
        queue.enqueue_messages(origin, list(payloads))


def processed(queue: MessageQueue) -> list[tuple[str, bytes]]:
    """Return the processed messages, by origin and id."""
    return [(event.origin, event.id) for event in queue.inspect.events(name="Processed")]
