"""A block in one call: the task group `plan >> process >> settle`. ::

    with DAG("orders", schedule="*/5 * * * *", catchup=False):
        block(processors=[Processor("orders", "shop.orders:process", split=4)])

Each DAG run is a block: the plan claims what fits the weight, one task per part processes it, settling gives each
message its outcome. An empty plan skips straight to settling. Processors and their splits bound the number of tasks;
messages and origins do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskGroup, TriggerRule
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset

from airflow_mq.operators.blocks import PlanBlockOperator, ProcessMessagesOperator, SettleBlockOperator
from airflow_mq.operators.spark.hook import spark_options
from airflow_mq.processors import AnyProcessors, Processor, Processors

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_mq.operators.base import GivenWeight
    from airflow_mq.operators.blocks.settle import Notifier


def block(
    group_id: str = "block",
    *,
    processors: AnyProcessors | Iterable[Processor],
    mq_conn_id: str | None = None,
    ring: str | None = None,
    limit: GivenWeight = None,
    spark_conn_id: str | None = None,
    lease: float | str | None = None,
    share_below: int | str | None = None,
    exchange: str | ObjectStoragePath | None = None,
    outlet: Asset | None = None,
    rounds: int | str | None = None,
    notifiers: Notifier | Sequence[Notifier] = (),
    patience: float | str | None = None,
    retries: int | None = None,
    default_args: Mapping[str, Any] | None = None,
    process_args: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """Add the tasks of a block to the DAG that is open.

    A parameter that is left out is that of the default arguments, of the DAG's as well, or the one named here.

    :param group_id: name of the task group
    :param processors: the rules that route origins to processors: `Processors`, several of `Processor`, or their file
    :param mq_conn_id: id of a connection of type `airflow_mq`; `airflow_mq_default` (templated)
    :param ring: name of the ring; the connection's (templated)
    :param limit: what the block may cost, `10m/1GiB` or `[milliseconds, bytes]`; the ring's service weight (templated)
    :param spark_conn_id: id of the Spark connection, which processors in place do not use; `spark_default` (templated)
    :param lease: seconds after which the block may be released unless a job renews it; the ring's (templated)
    :param share_below: processors with fewer messages than this share a Spark job; 10,000 (templated)
    :param exchange: address or `ObjectStoragePath` for Spark clusters that cannot reach the store (templated)
    :param outlet: an asset that settling emits while a block of these processors and this limit would take messages
    :param rounds: runs in a row that the outlet starts at most, the first one included (templated)
    :param notifiers: called when the block set messages aside
    :param patience: seconds that the plan waits while another task services the ring; 60 (templated)
    :param retries: retries of each task; all of them may be retried at any time
    :param default_args: default arguments of all three tasks
    :param process_args: further arguments of the processing task, such as `pool` or `max_active_tis_per_dagrun`
    """
    routes = Processors.of(processors)
    for processor in routes:
        spark_options(processor)
    place = _given(mq_conn_id=mq_conn_id, ring=ring)
    arguments = {**(default_args or {}), **_given(retries=retries)}
    with TaskGroup(group_id, default_args=arguments, tooltip="Plans, processes and settles one block.") as group:
        fails_fast = group.dag is not None and group.dag.fail_fast
        plan = PlanBlockOperator(
            task_id="plan", processors=routes, **place,
            **_given(limit=limit, lease=lease, share_below=share_below, patience=patience),
        )  # fmt: skip
        process = ProcessMessagesOperator.partial(
            # As text: Airflow serializes the arguments of a mapped task, and they must be equal at every parse.
            task_id="process", processors=routes.to_json(), plan_task_id=plan.task_id,
            **{
                "map_index_template": "{{ task.part['name'] }}", **place,
                **_given(spark_conn_id=spark_conn_id, exchange=exchange, lease=lease), **(process_args or {}),
            },
        ).expand(part=plan.output)  # fmt: skip
        settle = SettleBlockOperator(
            task_id="settle", plan_task_id=plan.task_id, process_task_id=process.task_id, outlet=outlet,
            notifiers=notifiers, processors=routes, **place, **_given(rounds=rounds, exchange=exchange),
            trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS if fails_fast else TriggerRule.ALL_DONE,
        )  # fmt: skip
        # The plan as well: Airflow keeps the parts of a cleared run as removed, and does not wait for them.
        [plan, process] >> settle
        if fails_fast:
            _end_in_spite_of_failures(plan, settle)
    return group


def _given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are given: None would take the place of a default argument."""
    return {name: value for name, value in arguments.items() if value is not None}


def _end_in_spite_of_failures(plan: PlanBlockOperator, settle: SettleBlockOperator) -> None:
    """Let a block settle in a DAG that skips all other tasks once one has failed.

    Airflow spares teardowns only. Tasks that follow a group do not wait for its teardown, so `settled` follows it. Such
    a DAG's run succeeds if its last tasks were skipped, so `watch` fails if the settling task did.
    """
    settle.as_teardown(setups=plan)
    settle >> EmptyOperator(task_id="settled")
    watch = EmptyOperator(task_id="watch").as_teardown(on_failure_fail_dagrun=True)
    watch.trigger_rule = TriggerRule.ALL_SUCCESS
    settle >> watch
